"""Models: shapes, starts, and torch modules as they are."""

import pytest
import torch
from torch import nn
from twins import TWINS, count, twin

import fedlib
from fedlib.models import CNN, MLP, Model, femnist_cnn, lenet5


@pytest.mark.parametrize("name", TWINS)
def test_equals_its_twin_in_plain_torch(name):
    params, predict, module = twin(name)
    x = fedlib.Key(0).normal(torch.arange(5), "x", 1, 6, 6)
    torch.testing.assert_close(predict(params, x), module(x))


@pytest.mark.parametrize(
    ("model", "image", "numbers"),
    [
        (femnist_cnn(), (1, 28, 28), 6_603_710),
        (lenet5(), (3, 32, 32), 62_006),
        (MLP((784, 64, 10)), (1, 28, 28), 50_890),
    ],
    ids=["LEAF's FEMNIST", "LeNet-5", "MLP"],
)
def test_sizes(model, image, numbers):
    params = model.init(0)
    assert count(params) == numbers
    assert model(params, torch.zeros(2, *image)).shape == (2, params[list(params)[-1]].shape[0])


def test_start_is_pytorchs_default_distribution_and_reproducible():
    model = CNN((3, 8, 8), (200,), (300,), kernel=3, padding=1)
    params = model.init(3)
    torch.manual_seed(0)
    for name, layer in {"conv1": nn.Conv2d(3, 200, 3), "dense1": nn.Linear(200 * 16, 300)}.items():
        for part in ("weight", "bias"):
            ours, default = params[f"{name}.{part}"], getattr(layer, part)
            assert ours.shape == default.shape and ours.dtype == torch.float32
            assert float(ours.abs().max()) == pytest.approx(float(default.detach().abs().max()), rel=0.05)
            assert float(ours.std()) == pytest.approx(float(default.detach().std()), rel=0.1)
    assert all(torch.equal(p, model.init(3)[name]) for name, p in params.items())
    assert not torch.equal(params["conv1.weight"], model.init(4)["conv1.weight"])


def test_model_leaves_the_module_alone():
    module = nn.Linear(3, 2)
    before = module.weight.detach().clone()
    predict = Model(module)
    params = predict.params
    params["weight"] += 1
    assert torch.equal(module.weight, before)
    with torch.no_grad():
        module.weight.zero_()
    torch.testing.assert_close(predict(params, torch.eye(3)), (before + 1).T + params["bias"])


def test_frozen_parameters_of_a_module_stay_in_it():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    predict = Model(module)
    params = predict.params
    assert set(params) == {"1.weight", "1.bias"}
    torch.testing.assert_close(predict(params, torch.eye(3)), module(torch.eye(3)))

"""Models: shapes, starts, and torch modules as they are."""

import pytest
import torch
from torch import nn
from twins import count

from fedlib.models import CNN, MLP, Model, femnist_cnn, lenet5

SIZES = {  # a model, its images, how many numbers it has
    "LEAF's FEMNIST": (femnist_cnn(), (1, 28, 28), 6_603_710),
    "LeNet-5": (lenet5(), (3, 32, 32), 62_006),
    "MLP": (MLP((784, 64, 10)), (1, 28, 28), 50_890),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    model, image, numbers = SIZES[name]
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
    before, predict = module.weight.detach().clone(), Model(module)
    params = predict.params
    params["weight"] += 1
    assert torch.equal(module.weight, before)
    nn.init.zeros_(module.weight)
    torch.testing.assert_close(predict(params, torch.eye(3)), (before + 1).T + params["bias"])
    module = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2))
    predict = Model(module)
    assert set(predict.params) == {"1.weight", "1.bias"}, "frozen parameters of a module stay in it"
    torch.testing.assert_close(predict(predict.params, torch.eye(3)), module(torch.eye(3)))


def test_parametrized_weights_are_the_same_for_every_seed_and_init_says_so():
    with pytest.warns(UserWarning, match="parametrized weights of layer '0' keep their numbers for every seed"):
        Model(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)))).init(0)

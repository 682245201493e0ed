"""The experiment on batch normalisation against torch's own layers."""

import pytest
import torch
from torch import nn

from book.experiments.normalisation import CHANNELS, EPS, Network

WHO = torch.arange(6) != 3  # the row that is padding


def in_torch(params, norm):
    """The network as torch's layers."""
    layers = []
    for n, (inputs, channels) in enumerate(zip((1, *CHANNELS), CHANNELS, strict=False), 1):
        conv = nn.Conv2d(inputs, channels, 3, 2, 1).double()
        conv.load_state_dict({name: params[f"conv{n}.{name}"] for name in ("weight", "bias")})
        batch = nn.BatchNorm2d(channels, EPS, momentum=1.0).double()
        layer = {"none": nn.Identity(), "group": nn.GroupNorm(4, channels, EPS)}.get(norm, batch)
        if norm != "none":
            layer.weight.data, layer.bias.data = params[f"norm{n}.gamma"], params[f"norm{n}.beta"]
        if norm == "batch":
            layer.running_mean, layer.running_var = params[f"norm{n}.mean"].clone(), params[f"norm{n}.var"].clone()
        layers += [conv, layer, nn.ReLU()]
    last = nn.Linear(params["dense1.weight"].shape[1], 10).double()
    last.load_state_dict({name: params[f"dense1.{name}"] for name in ("weight", "bias")})
    return nn.Sequential(*layers, nn.Flatten(), last)


@pytest.mark.parametrize("norm", ["none", "group", "batch", "own"])
def test_it_is_torchs_normalisation(norm):
    """By the batch without its padding, and by what is kept."""
    draw = torch.Generator().manual_seed(0)
    params = {name: torch.rand(p.shape, generator=draw).double() for name, p in Network(norm).init(0).items()}
    x = torch.rand(6, 1, 14, 14, generator=draw, dtype=torch.float64)
    module = in_torch(params, norm)
    if norm != "own":
        assert torch.allclose(Network(norm)(params, x), module.eval()(x), rtol=0, atol=1e-10)
    found, measured = Network(norm).forward(params, x, WHO.double())
    assert torch.allclose(found[WHO], module.train()(x[WHO]), rtol=0, atol=1e-10)
    for n, side in ((1, 7), (2, 4)):
        if norm in ("batch", "own"):  # torch keeps the variance with n - 1
            layer, values = module[3 * n - 2], side * side * 5
            variance = layer.running_var * (values - 1) / values
            assert torch.allclose(measured[f"norm{n}.mean"], layer.running_mean, rtol=0, atol=1e-10)
            assert torch.allclose(measured[f"norm{n}.var"], variance, rtol=0, atol=1e-10)

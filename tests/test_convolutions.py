"""The ways to convolve a stack of clients, and the choice between them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from twins import normal

from fedlib import Key, convolutions, stacked

SHAPES = {  # clients, rows, channels in and out, height, width, kernel, then stride, padding, dilation, groups
    "sides that differ": ((3, 4, 2, 4, 7, 6, (3, 2)), ((1, 2), (1, 0), (1, 1), 2)),
    "dilation": ((5, 2, 3, 4, 8, 8, (3, 3)), (1, 1, 2, 1)),
    "one pixel": ((2, 3, 1, 2, 5, 5, (1, 1)), (1, 0, 1, 1)),
    "depthwise": ((4, 2, 4, 4, 9, 7, (3, 3)), (2, 1, 1, 4)),
    "one client": ((1, 2, 3, 4, 8, 8, (3, 3)), (1, [1], 1, 1)),
    "by name": ((3, 2, 3, 4, 8, 8, (3, 3)), (1, "same", 2, 1)),
}


def derivatives(f, *tensors):
    """The values, first and second derivatives of a function of tensors."""
    out = f(*tensors)
    first = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
    return out, *first, *torch.autograd.grad(sum(d.square().sum() for d in first), tensors)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_stack_is_one_client_after_another(one_by_one, shape, bias, monkeypatch):
    monkeypatch.setattr(convolutions, "_one_by_one", lambda *_: one_by_one)
    (clients, rows, inputs, outputs, height, width, kernel), settings = SHAPES[shape]
    shapes = (rows, inputs, height, width), (outputs, inputs // settings[3], *kernel), (outputs,)
    tensors = [normal(clients, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes[: 2 + bias])]

    def alone(x, w, *b):
        each = zip(x, w, *b, strict=True)
        return torch.stack([F.conv2d(*one, *([] if b else [None]), *settings) for one in each])

    def together(x, w, *b):
        return convolutions.conv2d(x, w, *(b or [None]), *settings)

    for a, b in zip(derivatives(together, *tensors), derivatives(alone, *tensors), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


CHOICES = [("AVX2", 3, 32, True)]  # processor, channels, side, whether one client comes after another
CHOICES += [("AVX2", 1, 32, False), ("AVX2", 17, 32, False), ("AVX2", 3, 4, False), ("AVX512", 3, 32, False)]


@pytest.mark.parametrize(("capability", "channels", "side", "alone"), CHOICES)
def test_the_way_follows_from_shapes_and_processor(capability, channels, side, alone, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    x, w = normal(3, 40, channels, side, side).float(), normal(3, 6, channels, 5, 5).float()
    out = convolutions.conv2d(x, w, padding=2)
    assert (out.stride(0) > out.stride(1)) == alone, "a client's images stay side by side"


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("large", [1, 2**9, 2**23])  # multiplications from which clients come one after another
def test_gradients_of_any_shape_in_the_layout_of_training(large, kind, onednn, monkeypatch):
    """Two layers, so that the second sees the images as the first hands them over; often one image a client."""
    monkeypatch.setattr(convolutions, "_LARGE", large)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    random, options = np.random.RandomState(0), ((1, 2, 3), (1, 1, 2, 17), (1, 3, 4), (1, 5), (1, 4))
    exact = {"atol": 1e-11, "rtol": 1e-9} if kind == torch.float64 else {"atol": 1e-3, "rtol": 1e-3}
    for seed in range(100):
        clients, rows, inputs, height, width = map(random.choice, options)
        groups, kernel = random.choice([1, inputs]), tuple(random.choice([1, min(3, n)]) for n in (height, width))
        middle, stride, padding = groups * random.choice([1, 2]), random.choice([1, 2]), random.choice([0, 1])
        first, second = (middle, inputs // groups, *kernel), (random.choice([1, 5]), middle, *random.choice([1, 3], 2))
        draws = (rows, inputs, height, width), first, second
        x, v, w = (Key(seed).normal(torch.arange(clients), str(i), *map(int, s)).to(kind) for i, s in enumerate(draws))
        v, w = v.requires_grad_(), w.requires_grad_()

        def both(x, v, w):
            middle = F.max_pool2d(F.conv2d(x, v, None, stride, padding, 1, groups).tanh(), 2, 1, 1)  # noqa: B023
            return F.conv2d(middle, w, padding=1).square().sum()

        with torch.backends.mkldnn.flags(enabled=onednn):
            # as optimisers leave them, with the strides of their layout even where filters have one pixel
            form = convolutions._layout(v)
            stack = [p.detach().flatten(0, 1).clone(memory_format=form).view_as(p).requires_grad_() for p in (v, w)]
            together = torch.autograd.grad(stacked.vmap(both)(x, *stack).sum(), stack)
            alone = torch.autograd.grad(sum(both(*one) for one in zip(x, v, w, strict=True)), (v, w))
        torch.testing.assert_close(together, alone, **exact, msg=lambda said: f"seed {seed}: {draws}: {said}")  # noqa: B023

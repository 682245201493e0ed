"""The table "Layers and models" of the book, row by row: what trains in a stack is the loop over clients; what does not
is refused before round 1, by the name of the layer."""

import re
import warnings
from functools import partial

import differential
import pytest
import torch
import torchvision
from differential import Attention, Augmented, Case, LoRA, Noisy, Rolled, Then, Tied, Transposed, frozen
from torch import nn
from torch.nn.utils import parametrizations

from fedlib.models import Model
from tools.notebooks import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it scripts some of its classes
    from torch_geometric.nn import DenseGCNConv, GCNConv

IMAGE, ROW, WORDS = (2, 6, 6), (5,), "ids"


class Graph(nn.Module):
    """A layer over the nodes of one graph, which all rows share."""

    def __init__(self, conv, dense):
        super().__init__()
        self.conv = conv
        edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        adjacency = torch.zeros(3, 3)
        adjacency[edges[0], edges[1]] = 1
        self.register_buffer("graph", adjacency if dense else edges)

    def forward(self, x):
        return self.conv(x, self.graph).mean(1)


def first(z):
    return z[0][:, -1]


def flat(*layers):
    return nn.Sequential(*layers, nn.Flatten())


def group_norm(channels):
    return nn.GroupNorm(1, channels)


def backbone():
    """A torchvision network with batch normalisation whose statistics stay, frozen, and a trainable head."""
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=4)
    for name, p in net.named_parameters():
        p.requires_grad_(name.startswith("fc"))
    return net.eval()


def convnext():
    blocks = [torchvision.models.convnext.CNBlockConfig(4, 8, 1), torchvision.models.convnext.CNBlockConfig(8, None, 1)]
    return torchvision.models.ConvNeXt(blocks, stochastic_depth_prob=0.4, num_classes=4)


def sequence(layer):
    return nn.Sequential(nn.Embedding(differential.WORDS, 4), Then(layer, partial(torch.mean, dim=1)))


vit = partial(torchvision.models.VisionTransformer, 8, 4, 1, 2, 8, 8, dropout=0.2, num_classes=4)
mobile = partial(
    torchvision.models.MobileNetV2, 4, 0.1, [[2, 8, 1, 1], [2, 8, 1, 2]], norm_layer=group_norm, dropout=0.2
)
resnet = partial(
    torchvision.models.ResNet, torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], 4, norm_layer=group_norm
)
WORKS = {
    "Linear": (partial(nn.Linear, 5, 4), ROW),
    "Bilinear": (lambda: Pair(nn.Bilinear(5, 5, 3)), ROW),
    "Conv1d": (lambda: flat(nn.Conv1d(2, 3, 2, dilation=2)), (2, 5)),
    "Conv2d": (lambda: flat(nn.Conv2d(2, 4, 3, 2, 1, groups=2), nn.ReLU(), nn.Conv2d(4, 3, 2)), IMAGE),
    "Conv3d": (lambda: flat(nn.Conv3d(2, 3, 2)), (2, 3, 3, 3)),
    "ConvTranspose1d": (lambda: flat(nn.ConvTranspose1d(2, 3, 2, 2)), (2, 3)),
    "ConvTranspose2d": (lambda: flat(nn.ConvTranspose2d(2, 3, 2, 2)), (2, 3, 3)),
    "ConvTranspose3d": (lambda: flat(nn.ConvTranspose3d(2, 2, 2)), (2, 2, 2, 2)),
    "MaxPool2d": (lambda: flat(nn.Conv2d(2, 2, 1), nn.MaxPool2d(2)), IMAGE),
    "AvgPool2d": (lambda: flat(nn.Conv2d(2, 2, 1), nn.AvgPool2d(2)), IMAGE),
    "AdaptiveAvgPool2d": (lambda: flat(nn.Conv2d(2, 2, 1), nn.AdaptiveAvgPool2d(2)), IMAGE),
    "MaxPool1d": (lambda: flat(nn.Conv1d(2, 2, 1), nn.MaxPool1d(2)), (2, 5)),
    "MaxPool3d": (lambda: flat(nn.Conv3d(2, 2, 1), nn.MaxPool3d(2)), (2, 4, 4, 4)),
    "GroupNorm": (lambda: flat(nn.GroupNorm(2, 2)), IMAGE),
    "LayerNorm": (partial(nn.LayerNorm, 5), ROW),
    "InstanceNorm2d": (lambda: flat(nn.InstanceNorm2d(2, affine=True)), IMAGE),
    "RMSNorm": (partial(nn.RMSNorm, 5), ROW),
    "BatchNorm in evaluation mode": (lambda: flat(nn.BatchNorm2d(2).eval()), IMAGE),
    "Dropout": (lambda: nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.4)), ROW),
    "Dropout2d": (lambda: flat(nn.Conv2d(2, 3, 1), nn.Dropout2d(0.4), nn.FeatureAlphaDropout(0.3)), IMAGE),
    "AlphaDropout": (lambda: nn.Sequential(nn.Linear(5, 5), nn.AlphaDropout(0.4)), ROW),
    "torch.rand, randn, bernoulli in forward": (Noisy, ROW),
    "fedlib.augment": (lambda: flat(Augmented(), nn.Conv2d(2, 2, 3)), IMAGE),
    "Embedding": (lambda: Then(nn.Embedding(differential.WORDS, 4), partial(torch.mean, dim=1)), WORDS),
    "Embedding with padding_idx, sparse": (
        lambda: Then(nn.Embedding(differential.WORDS, 4, padding_idx=2, sparse=True), partial(torch.mean, dim=1)),
        WORDS,
    ),
    "EmbeddingBag": (partial(nn.EmbeddingBag, differential.WORDS, 4), WORDS),
    "MultiheadAttention": (lambda: sequence(Attention(4, dropout=0.2)), WORDS),
    "TransformerEncoder": (
        lambda: sequence(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 5, 0.2, batch_first=True), 2)),
        WORDS,
    ),
    "RNN": (lambda: Then(nn.RNN(4, 3, 2, batch_first=True), first), (3, 4)),
    "GRU": (lambda: Then(nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), first), (3, 4)),
    "LSTM": (lambda: Then(nn.LSTM(4, 3, 2, batch_first=True, proj_size=2), first), (3, 4)),
    "RNNCell": (lambda: Rolled(nn.RNNCell(4, 3)), (3, 4)),
    "GRUCell": (lambda: Rolled(nn.GRUCell(4, 3)), (3, 4)),
    "LSTMCell": (lambda: Rolled(nn.LSTMCell(4, 3)), (3, 4)),
    "weight_norm": (lambda: parametrizations.weight_norm(nn.Linear(5, 4)), ROW),
    "spectral_norm in evaluation mode": (lambda: parametrizations.spectral_norm(nn.Linear(5, 4)).eval(), ROW),
    "tied weights": (partial(Tied, 5), ROW),
    "LoRA": (partial(LoRA, 5, 4), ROW),
    "frozen layers": (lambda: nn.Sequential(frozen(nn.Linear(5, 5)), nn.Tanh(), nn.Linear(5, 4)), ROW),
    "frozen torchvision ResNet, BatchNorm in evaluation mode": (backbone, (3, 16, 16)),
    "torchvision ResNet with GroupNorm": (resnet, (3, 8, 8)),
    "torchvision MobileNetV2 with GroupNorm": (mobile, (3, 8, 8)),
    "torchvision ConvNeXt, stochastic depth": (convnext, (3, 8, 8)),
    "torchvision VisionTransformer": (vit, (3, 8, 8)),
    "torch-geometric GCNConv": (lambda: Graph(GCNConv(4, 3), dense=False), (3, 4)),
    "torch-geometric DenseGCNConv": (lambda: Graph(DenseGCNConv(4, 3), dense=True), (3, 4)),
    "Conv1d over a sequence": (
        lambda: Then(nn.Sequential(Transposed(), nn.Conv1d(4, 3, 2)), partial(torch.mean, dim=2)),
        (3, 4),
    ),
}
REFUSED = {
    "BatchNorm": (lambda: nn.BatchNorm2d(2), "running statistics"),
    "BatchNorm without running statistics": (lambda: nn.BatchNorm1d(2, track_running_stats=False), "padded rows too"),
    "InstanceNorm with running statistics": (
        lambda: nn.InstanceNorm2d(2, track_running_stats=True),
        "running statistics",
    ),
    "Embedding with max_norm": (lambda: nn.Embedding(4, 2, max_norm=1.0), "max_norm"),
    "Embedding with scale_grad_by_freq": (lambda: nn.Embedding(4, 2, scale_grad_by_freq=True), "scale_grad_by_freq"),
    "spectral_norm": (lambda: parametrizations.spectral_norm(nn.Linear(5, 4)), "writes into its vectors"),
    "lazy layers": (lambda: nn.LazyLinear(4), "call the module once"),
}


class Pair(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x.tanh())


def case(name, batch_size, chunk_size, dtype):
    """A federation of three ragged clients for a row of the table."""
    make, shape = WORKS[name]
    torch.manual_seed(0)
    layer = make()
    sizes = [3, 1, 4]
    if shape == WORDS:
        x = [torch.randint(differential.WORDS, (n, 4)) for n in sizes]
    else:
        x = [torch.randn(n, *shape) for n in sizes]
    width = layer(x[0]).shape[1:].numel()
    module = nn.Sequential(layer, nn.Linear(width, differential.CLASSES))
    settings = {"batch_size": batch_size, "epochs": 1, "chunk_size": chunk_size}
    y = [torch.randint(differential.CLASSES, (n,)) for n in sizes]
    return Case(0, module, x, y, dtype, settings, "SGD", True, 1)


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:TF32 acceleration", "ignore:LSTM with proj")
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_trains_as_in_a_loop(name, dtype):
    for batch_size in (1, None):
        for chunk_size in (1, 2, "auto"):
            assert differential.gap(case(name, batch_size, chunk_size, dtype)) <= 1, (batch_size, chunk_size)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_its_name(name):
    make, why = REFUSED[name]
    layer = make()
    with pytest.raises(ValueError, match=why) as said:
        Model(nn.Sequential(nn.Linear(2, 2), layer))
    assert re.search(r"^layer '1(\..*)?' is a ", str(said.value))


def test_the_page_has_these_rows():
    page = (ROOT / "book/modules.md").read_text(encoding="utf8")
    rows = re.findall(r"^\| (.+?) \| (works|refused)", page, re.MULTILINE)
    assert {row for row, verdict in rows if verdict == "works"} == set(WORKS)
    assert {row for row, verdict in rows if verdict == "refused"} == set(REFUSED)

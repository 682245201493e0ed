"""The table "Layers and models" of the book, row by row: what trains in a stack is the loop over clients; what does not
is refused before round 1, by the name of the layer."""

import re
import warnings
from functools import partial

import differential
import pytest
import torch
import torchvision
from differential import MEAN, OVER_TIME, Attention, Augmented, LoRA, Noisy, Rolled, Then, Tied, Transposed, frozen
from torch import nn
from torch.nn.utils import parametrizations

from fedlib.models import Model
from tools.notebooks import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it scripts some of its classes
    from torch_geometric.nn import DenseGCNConv, GCNConv

IMAGE, ROW, IDS = (2, 6, 6), (5,), None
BLOCKS, STEPS = (torchvision.models.resnet.BasicBlock, [1, 1, 1, 1]), [[2, 8, 1, 1], [2, 8, 1, 2]]
embedding = partial(nn.Embedding, differential.WORDS, 4)


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
    net = torchvision.models.ResNet(*BLOCKS, num_classes=4)
    for name, p in net.named_parameters():
        p.requires_grad_(name.startswith("fc"))
    return net.eval()


def convnext():
    blocks = [torchvision.models.convnext.CNBlockConfig(4, 8, 1), torchvision.models.convnext.CNBlockConfig(8, None, 1)]
    return torchvision.models.ConvNeXt(blocks, stochastic_depth_prob=0.4, num_classes=4)


def sequence(layer):
    return nn.Sequential(embedding(), Then(layer, MEAN))


encoder_layer = partial(nn.TransformerEncoderLayer, 4, 2, 5, 0.2, batch_first=True)
vit = partial(torchvision.models.VisionTransformer, 8, 4, 1, 2, 8, 8, dropout=0.2, num_classes=4)
mobile = partial(torchvision.models.MobileNetV2, 4, 0.1, STEPS, norm_layer=group_norm, dropout=0.2)
resnet = partial(torchvision.models.ResNet, *BLOCKS, 4, norm_layer=group_norm)
untracked_norm = partial(nn.BatchNorm1d, 2, track_running_stats=False)
tracked_norm = partial(nn.InstanceNorm2d, 2, track_running_stats=True)
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
    "Embedding": (lambda: Then(embedding(), MEAN), IDS),
    "Embedding with padding_idx, sparse": (lambda: Then(embedding(padding_idx=2, sparse=True), MEAN), IDS),
    "EmbeddingBag": (partial(nn.EmbeddingBag, differential.WORDS, 4), IDS),
    "MultiheadAttention": (lambda: sequence(Attention(4, dropout=0.2)), IDS),
    "TransformerEncoder": (lambda: sequence(nn.TransformerEncoder(encoder_layer(), 2)), IDS),
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
    "Conv1d over a sequence": (lambda: Then(nn.Sequential(Transposed(), nn.Conv1d(4, 3, 2)), OVER_TIME), (3, 4)),
}
REFUSED = {
    "BatchNorm": (lambda: nn.BatchNorm2d(2), "running statistics .*; use GroupNorm"),
    "BatchNorm without running statistics": (untracked_norm, "statistics of the whole batch, including padded rows"),
    "InstanceNorm with running statistics": (tracked_norm, "running statistics"),
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


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:TF32 acceleration", "ignore:LSTM with proj")
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_trains_as_in_a_loop(name, dtype):
    make, shape = WORKS[name]
    for batch_size in (1, None):
        for chunk_size in (1, 2, "auto"):
            torch.manual_seed(0)
            layer = make()
            width = layer(differential.rows(shape, 3)).shape[1:].numel()
            module = nn.Sequential(layer, nn.Linear(width, differential.CLASSES))
            case = differential.three_clients(module, shape, dtype, batch_size, chunk_size)
            assert differential.gap(case) <= 1, (batch_size, chunk_size)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_its_name(name):
    make, why = REFUSED[name]
    with pytest.raises(ValueError, match=rf"^layer '1(\..*)?' is a .*{why}"):
        Model(nn.Sequential(nn.Linear(2, 2), make()))


def test_the_page_has_these_rows():
    page = (ROOT / "book/modules.md").read_text(encoding="utf8")
    rows = re.findall(r"^\| (.+?) \| (works|refused)", page, re.MULTILINE)
    assert set(rows) == {(row, "works") for row in WORKS} | {(row, "refused") for row in REFUSED}

"""The table "Layers and models" of the book, row by row: what trains in a stack is the loop over clients; what does not
is refused before round 1, by the name of the layer. Plain layers are in the networks of `test_differential`."""

import re
import warnings
from functools import partial

import differential
import pytest
import torch
import torchvision
from differential import MEAN, Then, frozen
from refusals import refusals
from test_strangers import RIGHT
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
    "Bilinear": (lambda: Pair(nn.Bilinear(5, 5, 3)), ROW),
    "BatchNorm in evaluation mode": (lambda: flat(nn.BatchNorm2d(2).eval()), IMAGE),
    "Embedding with padding_idx, sparse": (lambda: Then(embedding(padding_idx=2, sparse=True), MEAN), IDS),
    "EmbeddingBag": (partial(nn.EmbeddingBag, differential.WORDS, 4), IDS),
    "TransformerEncoder": (lambda: sequence(nn.TransformerEncoder(encoder_layer(), 2)), IDS),
    "spectral_norm in evaluation mode": (lambda: parametrizations.spectral_norm(nn.Linear(5, 4)).eval(), ROW),
    "frozen layers": (lambda: nn.Sequential(frozen(nn.Linear(5, 5)), nn.Tanh(), nn.Linear(5, 4)), ROW),
    "frozen torchvision ResNet, BatchNorm in evaluation mode": (backbone, (3, 16, 16)),
    "torchvision ResNet with GroupNorm": (resnet, (3, 8, 8)),
    "torchvision MobileNetV2 with GroupNorm": (mobile, (3, 8, 8)),
    "torchvision ConvNeXt, stochastic depth": (convnext, (3, 8, 8)),
    "torchvision VisionTransformer": (vit, (3, 8, 8)),
    "torch-geometric GCNConv": (lambda: Graph(GCNConv(4, 3), dense=False), (3, 4)),
    "torch-geometric DenseGCNConv": (lambda: Graph(DenseGCNConv(4, 3), dense=True), (3, 4)),
}
# Rows whose layers are in the networks of `test_differential`, and what is looked for there.
DRAWN = {"weight_norm": "ParametrizedLinear", "tied weights": "Tied", "LoRA": "LoRA", "fedlib.augment": "Augmented"}
DRAWN |= {"torch.rand, randn, bernoulli in forward": "Noisy", "Conv1d over a sequence": "Transposed"}
PLAIN = ["Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "MaxPool1d"]
PLAIN += ["MaxPool2d", "MaxPool3d", "AvgPool2d", "AdaptiveAvgPool2d", "GroupNorm", "LayerNorm", "InstanceNorm2d"]
PLAIN += ["RMSNorm", "Dropout", "Dropout2d", "AlphaDropout", "Embedding", "MultiheadAttention", "RNN", "GRU", "LSTM"]
DRAWN |= {name: name for name in [*PLAIN, "RNNCell", "GRUCell", "LSTMCell"]}
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
@pytest.mark.parametrize("name", WORKS | RIGHT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_trains_as_in_a_loop(name, dtype):
    make, shape = (WORKS | RIGHT)[name]
    for batch_size in (1, None):
        for chunk_size in (1, 2, "auto"):
            torch.manual_seed(0)
            layer = make()
            width = layer(differential.rows(shape, 3)).shape[1:].numel()
            module = nn.Sequential(layer, nn.Linear(width, differential.CLASSES))
            case = differential.three_clients(module, shape, dtype, batch_size, chunk_size)
            if "masked" in name:
                case.x[2][1] = 0
            assert differential.gap(case) <= 1, (batch_size, chunk_size)


BY_NAME = {rf"^layer '1(\..*)?' is a .*{why}": make for make, why in REFUSED.values()}
test_refused_by_its_name = refusals({ValueError: BY_NAME}, lambda make: Model(nn.Sequential(nn.Linear(2, 2), make())))


def test_the_page_has_these_rows():
    page = (ROOT / "book/modules.md").read_text(encoding="utf8")
    rows = re.findall(r"^\| (.+?) \| (works|refused)", page, re.MULTILINE)
    assert set(rows) == {(row, "works") for row in [*DRAWN, *WORKS]} | {(row, "refused") for row in REFUSED}


def test_the_other_rows_are_among_the_drawn_networks():
    """Which `test_differential` trains."""
    modules = (m for number in range(1000) for m in differential.case(number).module.modules())
    assert set(DRAWN.values()) <= {type(m).__name__ for m in modules}

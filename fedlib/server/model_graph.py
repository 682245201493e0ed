"""A Siamese graph network that predicts from two clients' networks whether federating them helps.

A network becomes a graph whose nodes are the neurons and whose edges are the weights. Two graph convolutions, the same
for both clients of a pair, turn each graph into a vector, and one fully connected layer compares the two vectors.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import check_whole
from ..keys import Key
from ..params import Params

__all__ = ["ModelGraphs", "PairPredictor", "SiameseGCN", "model_graph", "train_siamese"]


@dataclass(frozen=True)
class ModelGraphs:
    """K networks of the same shape, as graphs.

    Make them with `model_graph`. Indexing with positions, ``graphs[clients]``, selects networks.

    Attributes
    ----------
    x : Tensor of shape (K, N, F)
        Features of the neurons.
    adjacency : Tensor of shape (K, 2, N, N)
        Positive and negative parts of the weights between neurons; nonnegative, symmetric, without self-loops.
    layer : Tensor of shape (N,), int64
        Layer of each neuron, from 0.
    """

    x: Tensor
    adjacency: Tensor
    layer: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, networks: Tensor | slice) -> "ModelGraphs":
        return ModelGraphs(self.x[networks], self.adjacency[networks], self.layer)


def model_graph(stack: Params, layers: Sequence[str]) -> ModelGraphs:
    """Turn dense layers of K networks into graphs.

    Parameters
    ----------
    stack : Params
        K networks, or their updates from a common model. Each layer has a weight (K, outputs, inputs) and a bias
        (K, outputs); other parameters are ignored.
    layers : sequence of str
        Names of consecutive dense layers, such as ``("dense2", "dense3")``.

    Returns
    -------
    ModelGraphs
        Nodes are the inputs of the first layer, then the outputs of every layer. The features of a node are its layer
        (one-hot), its bias (0 for inputs) and the norms of its incoming and of its outgoing weights.

    Raises
    ------
    ValueError
        No layers, a layer that is not dense, or layers that do not follow one another.

    Notes
    -----
    The paper does not state the features of nodes and edges (section 4.2, Step 4). Signed weights have signed degrees,
    whose roots are NaN, so positive and negative weights become two kinds of edges. Chapter 12.
    """
    weights = [stack[f"{name}.weight"] for name in layers]
    chain = all(w.ndim == 3 for w in weights) and all(w.shape[1] == v.shape[2] for w, v in pairwise(weights))
    if not (weights and chain):
        raise ValueError(f"layers must name dense layers that follow one another, at least one; got {list(layers)}")
    sizes = [weights[0].shape[2], *(w.shape[1] for w in weights)]
    layer = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(weights[0].device)
    signed = weights[0].new_zeros(len(weights[0]), sum(sizes), sum(sizes))
    start = 0  # of the inputs of a layer
    for w in weights:
        middle, end = start + w.shape[2], start + w.shape[2] + w.shape[1]
        signed[:, middle:end, start:middle] = w
        start = middle
    bias = torch.cat([signed.new_zeros(len(signed), sizes[0]), *(stack[f"{name}.bias"] for name in layers)], 1)
    kind = F.one_hot(layer).to(signed).expand(len(signed), -1, -1)
    x = torch.cat([kind, torch.stack([bias, signed.norm(dim=2), signed.norm(dim=1)], 2)], 2)
    signed = signed + signed.mT
    return ModelGraphs(x, torch.stack([signed.clamp(min=0), (-signed).clamp(min=0)], 1), layer)


class SiameseGCN(nn.Module):
    """Compare two networks by the vectors that two graph convolutions make of them.

    Parameters
    ----------
    features : int
        F, the number of features of a node.
    layers : int
        Number of layers of nodes.
    hidden : int
        Width of the convolutions, which the paper does not state.
    seed : int
        Seed of the initialisation.

    Notes
    -----
    Section 4.1 of the paper asks for "two GCN layers with one fully connected layer". Nodes are averaged layer by
    layer, so the order of the neurons in a layer does not matter. All features of pairs are symmetric. A subclass may
    define others, or another `loss`. Chapter 12.
    """

    rate, decay = 0.01, 0.0  # of Adam

    def __init__(self, features: int, layers: int, hidden: int = 32, seed: int = 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch-geometric imports what torch deprecates
            from torch_geometric.nn import DenseGCNConv

        super().__init__()
        self.layers = layers
        with torch.random.fork_rng(devices=[]):  # the layers also draw an initialisation
            self.first = nn.ModuleList(DenseGCNConv(features, hidden) for _ in range(2))
            self.second = nn.ModuleList(DenseGCNConv(hidden, hidden) for _ in range(2))
            self.compare = nn.Linear(self.both(*torch.zeros(2, 1, layers * hidden)).shape[1], 1)
        for name, p in self.named_parameters():
            draw = Key(seed).uniform(torch.zeros(1, dtype=torch.int64), name, *p.shape)[0]
            p.data.copy_((2 * draw - 1) * math.sqrt(6 / sum(p.shape)) if p.ndim == 2 else torch.zeros_like(draw))

    def embed(self, graphs: ModelGraphs) -> Tensor:
        """One vector for each network, of shape (K, layers * hidden)."""
        x = graphs.x
        for convolutions in (self.first, self.second):
            x = torch.stack([c(x, graphs.adjacency[:, i]) for i, c in enumerate(convolutions)]).sum(0).relu()
        kind = F.one_hot(graphs.layer, self.layers).to(x)
        return ((kind / kind.sum(0)).mT @ x).flatten(1)

    def forward(self, graphs: ModelGraphs, pairs: Tensor) -> Tensor:
        """One number for each pair of positions (P, 2), of shape (P,)."""
        return self.compare(self.both(*self.embed(graphs)[pairs].unbind(1))).squeeze(1)

    def both(self, a: Tensor, b: Tensor) -> Tensor:
        """Features ``|a - b|`` and ``a * b``, side by side, of the pairs whose vectors are a and b (P, ...)."""
        return torch.cat([(a - b).abs(), a * b], 1)

    def loss(self, output: Tensor, gain: Tensor) -> Tensor:
        """Cross-entropy (not stated in the paper), with target 1 for negative transfer (gain <= 0) and 0 otherwise."""
        return F.binary_cross_entropy_with_logits(output, (gain <= 0).to(output))


@dataclass(frozen=True)
class PairPredictor:
    """The result of `train_siamese`.

    Attributes
    ----------
    networks : tuple of S SiameseGCN
        One for each snapshot.
    mean, deviation : tuple of S Tensors of shape (layers, F)
        Mean and standard deviation of the training clients' node features, layer by layer.
    """

    networks: tuple[SiameseGCN, ...]
    mean: tuple[Tensor, ...]
    deviation: tuple[Tensor, ...]

    @torch.no_grad()
    def outputs(self, graphs: Sequence[ModelGraphs], pairs: Tensor) -> Tensor:
        """The output of each network for each pair, of shape (S, P); see `score`."""
        parts = zip(self.networks, graphs, self.mean, self.deviation, strict=True)
        return torch.stack([net(_scaled(g, mean, deviation), pairs) for net, g, mean, deviation in parts])

    def score(self, graphs: Sequence[ModelGraphs], pairs: Tensor) -> Tensor:
        """The expected negative transfer of each pair, the sum of the networks' outputs.

        Parameters
        ----------
        graphs : sequence of S ModelGraphs
            The snapshots as in training, of any clients.
        pairs : Tensor of shape (P, 2), int64
            Positions in `graphs`.

        Returns
        -------
        Tensor of shape (P,)
            Higher means more negative transfer, and 0 is the balance of helping and harming. The same for (i, j) as for
            (j, i).
        """
        return self.outputs(graphs, pairs).sum(0)

    def distance(self, graphs: Sequence[ModelGraphs]) -> Tensor:
        """Distances between all K clients, the logistic function of the score.

        Returns
        -------
        Tensor of shape (K, K)
            In [0, 1], symmetric, with a zero diagonal. An entry off the diagonal is the probability of negative
            transfer, 1/2 for a score of 0.
        """
        clients = len(graphs[0])
        i, j = torch.triu_indices(clients, clients, 1)
        score = torch.sigmoid(self.score(graphs, torch.stack([i, j], 1)))
        distance = score.new_zeros(clients, clients)
        distance[i, j] = distance[j, i] = score
        return distance


def train_siamese(
    graphs: Sequence[ModelGraphs],
    pairs: Tensor,
    gain: Tensor,
    seed: int = 0,
    epochs: int = 1000,
    network: type[SiameseGCN] = SiameseGCN,
) -> PairPredictor:
    """Learn to predict from two networks whether their clients should federate.

    Parameters
    ----------
    graphs : sequence of S ModelGraphs
        Snapshots of the same K clients, each at another time of local training. The paper has one, after some epochs
        from a common initialisation.
    pairs : Tensor of shape (P, 2), int64
        Positions of the training pairs in `graphs`. Clients in no pair are ignored.
    gain : Tensor of shape (P,)
        Positive transfer of each pair; above 0 federating helps.
    seed : int
    epochs : int
        Number of full-batch steps.
    network : type of SiameseGCN
        Its `loss` determines what is learned.

    Returns
    -------
    PairPredictor

    Raises
    ------
    ValueError
        No pairs, a pair of a client with itself, a gain or a graph that is not finite, lengths that do not match, or no
        epochs.

    Notes
    -----
    As in section 4.1 and Step 4 of the paper, Adam runs with learning rate .01 for all 100 rounds of 10 epochs; no
    clients are held out for early stopping. Node features are standardised layer by layer, with the mean and deviation
    of the training clients. Chapter 12.
    """
    check_whole(epochs, "epochs")
    gain = torch.as_tensor(gain)
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("a pair must have two different clients; one of them is a client with itself")
    if not len(pairs) or pairs.shape != (len(gain), 2) or not gain.isfinite().all():
        raise ValueError(f"give one finite gain for each pair, at least one pair; got {len(pairs)} pairs, gains {gain}")
    clients, inverse = pairs.unique(return_inverse=True)  # clients in no pair stay unseen
    if not all(g[clients].x.isfinite().all() and g[clients].adjacency.isfinite().all() for g in graphs):
        raise ValueError("the graphs have numbers that are NaN or infinite: the training of some network diverged")
    learned = [_train_one(g[clients], inverse, gain, seed + 1000 * s, epochs, network) for s, g in enumerate(graphs)]
    return PairPredictor(*zip(*learned, strict=True))


def _train_one(
    graphs: ModelGraphs, pairs: Tensor, gain: Tensor, seed: int, epochs: int, network: type[SiameseGCN]
) -> tuple[SiameseGCN, Tensor, Tensor]:
    rows = [graphs.x[:, graphs.layer == j].flatten(0, 1) for j in range(int(graphs.layer.max()) + 1)]
    mean, deviation = (torch.stack(m) for m in ([r.mean(0) for r in rows], [r.std(0, correction=0) for r in rows]))
    deviation = torch.where(deviation > 1e-8, deviation, 1)
    graphs, net = _scaled(graphs, mean, deviation), network(graphs.x.shape[2], len(mean), seed=seed).to(graphs.x)
    optimizer = torch.optim.Adam(net.parameters(), lr=net.rate, weight_decay=net.decay, fused=True)
    for _ in range(epochs):
        optimizer.zero_grad()
        net.loss(net(graphs, pairs), gain).backward()
        optimizer.step()
    return net.requires_grad_(False), mean, deviation


def _scaled(graphs: ModelGraphs, mean: Tensor, deviation: Tensor) -> ModelGraphs:
    """Standardise node features by those of the training clients, leaving the one-hot layer as it is."""
    layers = len(mean)
    x = (graphs.x - mean[graphs.layer]) / deviation[graphs.layer]
    return ModelGraphs(torch.cat([graphs.x[..., :layers], x[..., layers:]], 2), graphs.adjacency, graphs.layer)

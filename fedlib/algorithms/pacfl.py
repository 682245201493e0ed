"""PACFL clusters the clients before round 1 by the angles between the subspaces that their inputs span."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregate import membership
from ..checks import number, whole
from ..costs import record, server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, number_of_rows, row
from ..server.distance_clusters import linkage
from .clustered import Clustered, ClusteredState

__all__ = ["PACFL", "PACFLState", "principal_angles", "signature"]


def signature(x: Tensor, vectors: int) -> Tensor:
    """The first left singular vectors of a client's data matrix, whose columns are its examples.

    Parameters
    ----------
    x : Tensor of shape (n, ...)
        Inputs of n examples, which are not centred.
    vectors : int
        p, the number of vectors.

    Returns
    -------
    Tensor of shape (p, d), float64, on the CPU
        d is the number of input features. The rows are orthonormal, except that rows beyond the rank of the data are
        zeros. The sign of a row is arbitrary.
    """
    wide = x.cpu().double().reshape(len(x), -1)
    _, s, directions = torch.linalg.svd(wide, full_matrices=False)
    rank = int((s > s[0] * max(wide.shape) * torch.finfo(s.dtype).eps).sum())
    sent = wide.new_zeros(vectors, wide.shape[1])
    sent[: min(rank, vectors)] = directions[: min(rank, vectors)]
    return sent


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """The smallest principal angle between each pair of subspaces, one from `a` and one from `b`.

    Parameters
    ----------
    a : Tensor of shape (A, p, d)
        Orthonormal rows, or rows of zeros, as from `signature`.
    b : Tensor of shape (B, p, d)

    Returns
    -------
    Tensor of shape (A, B), float64, on the CPU
        Angles in degrees, from 0 to 90. Each is the arc cosine of the largest singular value of a_i b_j^T; it is 90 if
        either subspace has dimension 0.
    """
    products = torch.einsum("apd,bqd->abpq", a.cpu().double(), b.cpu().double())
    return torch.linalg.matrix_norm(products, ord=2).clamp(max=1).arccos().rad2deg()


@dataclass(frozen=True)
class PACFLState(ClusteredState):
    """State of PACFL.

    Attributes
    ----------
    signatures : Tensor of shape (K, p, d)
        The vectors that each client sends before round 1; see `signature`.
    """

    signatures: Tensor


@dataclass(frozen=True)
class PACFL(Clustered):
    """Before round 1, clients send p singular vectors of their inputs; clients with close subspaces share a model.

    (1) Each client computes the singular value decomposition of its data matrix, which has one column per example, and
    sends the first p left singular vectors. (2) The server computes the smallest principal angle between the subspaces
    of each pair of clients. (3) Agglomerative clustering merges clusters as long as the mean angle between the clients
    of two clusters is below `threshold`. From then on, each cluster is a separate federation that runs FedAvg from the
    common initialisation, and no client changes its cluster.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    vectors : int
        p, the number of singular vectors that each client sends; the authors use 3 to 5. The smallest angles shrink as
        p grows, and are 0 once the vectors span more than half of the input dimensions.
    threshold : float
        The clustering threshold in degrees, called beta in the paper. 0 leaves every client alone, which is LocalOnly
        up to rounding; above 90, there is one cluster, which is FedAvg.

    Raises
    ------
    ValueError
        A setting is out of range.

    Notes
    -----
    PACFL uses only the inputs, not the labels. It also separates groups only if even the *nearest* directions of their
    clients differ. For images, the first singular vector is almost their mean, and upside-down digits have nearly the
    same mean as upright ones.

    Each client sends p weighted sums of its raw inputs, which look like the inputs; a client with p examples or fewer
    sends a basis of all its inputs. Secure aggregation does not help, since the server must see the vectors of each
    client.

    All clients take part before round 1, which is recorded under the purpose "clustering" in round 0 of the history;
    the operations of the decompositions are not counted. A new client sends its signature and joins the cluster to
    whose clients its mean angle is smallest. The paper's text was not available, so the implementation follows memory
    and the authors' program (MMorafah/PACFL on GitHub); the atlas lists the differences from that program. Chapter 07.

    References
    ----------
    Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin. Efficient distribution similarity identification in clustered
    federated learning via principal angles between client data subspaces. AAAI 2023, arXiv:2209.10526.
    """

    vectors: int = whole(3)
    threshold: float = number(10.0)

    def init(self, params: Params, data: ClientData, key: Key) -> PACFLState:
        """Start with one model; no client has sent anything yet."""
        none = next(iter(params.values())).new_zeros(len(data), 0, 0)
        return PACFLState(broadcast(params, 1), torch.zeros_like(data.n), none)

    def prepare(self, state: PACFLState, data: ClientData, key: Key) -> PACFLState:
        """Collect the signatures of all clients and form the clusters, whose models share the common initialisation."""
        sent = self.sent(state, data)
        with server_time("clustering"):
            clusters = linkage(principal_angles(sent, sent), threshold=self.threshold)
        models = broadcast(row(state.models, 0), int(clusters.max()) + 1)
        return PACFLState(models, clusters.to(data.n.device), sent)

    def sent(self, state: PACFLState, data: ClientData) -> Tensor:
        """The signatures (C, p, d) of these clients, in the type of the models; records their costs."""
        model = next(iter(state.models.values()))
        inputs = (data.features(index[:n], model.dtype) for index, n in zip(data.index, data.n.tolist(), strict=True))
        signatures = torch.stack([signature(x, self.vectors) for x in inputs]).to(model)
        record("clustering", bytes_up=int(signatures.any(-1).sum()) * signatures[0, 0].nbytes)
        return signatures

    def new_clients(self, state: PACFLState, data: ClientData, key: Key, rounds: int) -> PACFLState:
        """A new client sends its signature and joins the cluster whose clients are nearest on average."""
        sent = self.sent(state, data)
        angles = principal_angles(sent, state.signatures).to(data.n.device)
        member = membership(state.assignment, torch.ones_like(state.assignment).double(), number_of_rows(state.models))
        mean = angles @ (member / member.sum(1, keepdim=True)).T
        return replace(state, assignment=mean.argmin(1), signatures=sent)

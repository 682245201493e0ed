"""PACFL: clusters found before round 1 from the angles between the subspaces that the clients' inputs span."""

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
        Inputs of n examples; not centred.
    vectors : int
        p.

    Returns
    -------
    Tensor of shape (p, d), float64, on the CPU
        d is the number of inputs. Rows have length 1 and right angles; those beyond the rank of the data are zeros. The
        sign of a row is arbitrary.
    """
    wide = x.cpu().double().reshape(len(x), -1)
    _, s, directions = torch.linalg.svd(wide, full_matrices=False)
    rank = int((s > s[0] * max(wide.shape) * torch.finfo(s.dtype).eps).sum())
    sent = wide.new_zeros(vectors, wide.shape[1])
    sent[: min(rank, vectors)] = directions[: min(rank, vectors)]
    return sent


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """The smallest principal angle between each two subspaces.

    Parameters
    ----------
    a : Tensor of shape (A, p, d)
        Orthonormal rows, or rows of zeros, as from `signature`.
    b : Tensor of shape (B, p, d)

    Returns
    -------
    Tensor of shape (A, B), float64, on the CPU
        In degrees, from 0 to 90: the arc cosine of the largest singular value of a_i b_j^T. 90 with a subspace of no
        dimension.
    """
    products = torch.einsum("apd,bqd->abpq", a.cpu().double(), b.cpu().double())
    return torch.linalg.matrix_norm(products, ord=2).clamp(max=1).arccos().rad2deg()


@dataclass(frozen=True)
class PACFLState(ClusteredState):
    """State of PACFL.

    Attributes
    ----------
    signatures : Tensor of shape (K, p, d)
        What each client has sent before round 1, see `signature`.
    """

    signatures: Tensor


@dataclass(frozen=True)
class PACFL(Clustered):
    """Before round 1 clients send p singular vectors of their inputs; those whose subspaces are near share a model.

    (1) A client takes the singular value decomposition of its data matrix, one column for each example, and sends the
    first p left singular vectors. (2) The server takes the smallest principal angle between the subspaces of each two
    clients. (3) Agglomerative clustering joins clusters as long as two of them are less than `threshold` apart, on
    average over their clients. After that each cluster is a federation of its own, with FedAvg from the common start,
    and nobody changes.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    vectors : int
        p, singular vectors of a client; the authors take 3 to 5. With more the smallest angles shrink, to 0 for vectors
        that span half of the inputs.
    threshold : float
        The clustering threshold, called beta in the paper, in degrees. 0 leaves every client alone, which is LocalOnly
        but for rounding; above 90 there is one cluster, which is FedAvg.

    Raises
    ------
    ValueError
        A setting out of its range.

    Notes
    -----
    It sees inputs only, not what they are called. And it sees a group only where the *nearest* directions of two
    clients part: the first singular vector of images is almost their mean, and digits upside down have nearly the mean
    of upright ones.

    Each client sends p weighted sums of its raw inputs, which look like them; a client with p examples or fewer sends a
    basis of all that it holds. Secure aggregation does not help, since the server must see the vectors of each client.

    All clients take part before round 1, with the purpose "clustering" in round 0 of the history; the operations of the
    decompositions are not counted. A client never seen sends its signature and takes the cluster to whose clients its
    mean angle is smallest. The paper's text was not at hand; from memory and the authors' program (MMorafah/PACFL on
    GitHub), from which the atlas says what differs. Chapter 07.

    References
    ----------
    Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin. Efficient distribution similarity identification in clustered
    federated learning via principal angles between client data subspaces. AAAI 2023, arXiv:2209.10526.
    """

    vectors: int = whole(3)
    threshold: float = number(10.0)

    def init(self, params: Params, data: ClientData, key: Key) -> PACFLState:
        """One model, and nobody has sent anything yet."""
        none = next(iter(params.values())).new_zeros(len(data), 0, 0)
        return PACFLState(broadcast(params, 1), torch.zeros_like(data.n), none)

    def prepare(self, state: PACFLState, data: ClientData, key: Key) -> PACFLState:
        """Signatures of all clients, then clusters, each with a model from the common start."""
        sent = self.sent(state, data)
        with server_time("clustering"):
            clusters = linkage(principal_angles(sent, sent), threshold=self.threshold)
        models = broadcast(row(state.models, 0), int(clusters.max()) + 1)
        return PACFLState(models, clusters.to(data.n.device), sent)

    def sent(self, state: PACFLState, data: ClientData) -> Tensor:
        """The signatures (C, p, d) of these clients, in the type of the models; enters what they cost."""
        model = next(iter(state.models.values()))
        inputs = (data.features(index[:n], model.dtype) for index, n in zip(data.index, data.n.tolist(), strict=True))
        signatures = torch.stack([signature(x, self.vectors) for x in inputs]).to(model)
        record("clustering", bytes_up=int(signatures.any(-1).sum()) * signatures[0, 0].nbytes)
        return signatures

    def new_clients(self, state: PACFLState, data: ClientData, key: Key, rounds: int) -> PACFLState:
        """A new client sends its signature and takes the cluster whose clients are nearest on average."""
        sent = self.sent(state, data)
        angles = principal_angles(sent, state.signatures).to(data.n.device)
        member = membership(state.assignment, torch.ones_like(state.assignment).double(), number_of_rows(state.models))
        mean = angles @ (member / member.sum(1, keepdim=True)).T
        return replace(state, assignment=mean.argmin(1), signatures=sent)

"""CelebA as LEAF and FedCG use it: photos of celebrities, their attributes, and the network with batch normalisation.

`celeba_clients` draws celebrities and reads their photos only; `load` reads all of them, 4.3 GB. Each celebrity is a
client: ``fedlib.partition.by_user(faces.writer)``. `split_users` and `client_statistics` serve other data sets with
users too, such as FEMNIST from `fedlib.datasets.leaf`.
"""

import hashlib
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor
from tqdm import tqdm

from ..client.domain_net import DomainNet
from ..data import Batch, ClientData
from ..datasets import Arrays, Stats, _need, _package
from ..evaluation import evaluate
from ..losses import weighted_mean
from ..models import _init
from ..params import Params
from ..partition import _random
from ..server.domain_graph import _domain_channels, domain_dense
from ..stacked import dense, stackable

if TYPE_CHECKING:
    from ..algorithm import Algorithm
    from ..federation import Result

__all__ = [
    "PAPER_ATTRIBUTES",
    "STATS",
    "AttributeDomains",
    "CelebACNN",
    "CelebANet",
    "Faces",
    "attribute_domains",
    "celeba_clients",
    "client_statistics",
    "identities",
    "load",
    "scores_by_client",
    "split_users",
]

PAPER_ATTRIBUTES = ("Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Wavy_Hair")
TARGET = "Smiling"
_SIDE = 84
_EPS = 1e-3  # of LEAF's batch normalisation


# ---- files ----

_IDENTITY, _ATTRIBUTES, _PHOTOS = "identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"
_PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
_GET = (
    "CelebA's licence allows non-commercial research only, so fedlib does not download it: get img_align_celeba.zip, "
    f"list_attr_celeba.txt and identity_CelebA.txt (its authors send it on request) from {_PAGE}, put them into one "
    "folder 'celeba', and unpack the photos there as celeba/img_align_celeba/*.jpg"
)
_MD5 = {_IDENTITY: "md5:32bd1bd63d3c78cd57e08160ec5ed1e2", _ATTRIBUTES: "md5:75e246fa4810816ffd6ee81facbd244c"}
_NOTE = "Photos of celebrities: smiling (1) or not, 40 attributes, and whom they show."
STATS = Stats(202_599, 0, (3, _SIDE, _SIDE), 2, _PAGE, "non-commercial research only", _MD5, _NOTE)


@dataclass(frozen=True, eq=False)
class Faces(Arrays):
    """Photos of celebrities (chapter 06).

    Parameters
    ----------
    x, y, x_test, y_test : ndarray
        Photos (R, 3, 84, 84), uint8; y is 1 for Smiling, else 0.
    columns : tuple of str
        Names of the attributes.
    writer, writer_test : ndarray
        int64 number of the celebrity on each photo.
    attributes, attributes_test : ndarray of shape (R, 40)
        uint8, 0 or 1.
    stats : Stats
    """

    attributes: np.ndarray | None = None
    attributes_test: np.ndarray | None = None


def _place(root: str | Path | None) -> Path:
    """The folder of the files: torchvision's celeba, or celeba/data/raw of LEAF's folder `data`."""
    folder = Path(root or os.environ.get("FEDLIB_DATA") or "~/.cache/fedlib").expanduser() / "celeba"
    raw = folder / "data" / "raw"
    return raw if (raw / _IDENTITY).is_file() and not (folder / _IDENTITY).is_file() else folder


def _rows(place: Path, file: str, form: str, verify: bool, head: int = 0) -> tuple[list[str], list[list[str]]]:
    """The first `head` lines of a table, and the words of the others, which must have the given form."""
    content = _need(place / file, "", _GET).read_bytes()
    found = f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    if verify and found != STATS.checksums[file]:
        text = f"{place / file} has checksum {found}, expected {STATS.checksums[file]}: copy it again"
        raise ValueError(f"{text}. For a part of CelebA, or stand-ins, give celeba_clients verify=False")
    lines = content.decode(errors="replace").rstrip().splitlines()
    for number, line in enumerate(lines[head:], head + 1):
        if not re.fullmatch(form, line.strip()):
            text = f"{place / file} is damaged or another file: line {number} is {line[:60]!r}"
            raise ValueError(f"{text}. Copy it again")
    return lines[:head], [line.split() for line in lines[head:]]


def _identities(place: Path, verify: bool) -> tuple[list[str], np.ndarray]:
    _, rows = _rows(place, _IDENTITY, r"\S+\s+[0-9]{1,9}", verify)
    return [photo for photo, _ in rows], np.array([person for _, person in rows], np.int64)


def _tables(place: Path, verify: bool) -> tuple[list[str], np.ndarray, tuple[str, ...], np.ndarray]:
    """Photos, whom they show, names of the attributes, and the attributes (R, 40), 0 or 1."""
    photos, persons = _identities(place, verify)
    head, rows = _rows(place, _ATTRIBUTES, r"\S+(\s+-?1)+", verify, head=2)
    names = tuple(head[-1].split()) if head else ()
    if TARGET not in names or [row[0] for row in rows] != photos or {len(row) for row in rows} != {len(names) + 1}:
        raise ValueError(
            f"{place / _ATTRIBUTES} is damaged or another file: expected in line 2 names of attributes, {TARGET} among "
            f"them, then a line for each of the {len(photos)} photos in {_IDENTITY}. Copy it again"
        )
    return photos, persons, names, np.array([[value == "1" for value in row[1:]] for row in rows], np.uint8)


def _decode(place: Path, photos: Sequence[str]) -> np.ndarray:
    """Photos (R, 3, 84, 84), uint8, made smaller as LEAF does: without regard to their proportions."""
    pillow = _package("PIL.Image")
    paths = [place / _PHOTOS / photo for photo in photos]
    if missing := [path for path in paths if not path.is_file()]:
        raise FileNotFoundError(f"{missing[0]} is not there: {len(missing)} of {len(paths)} photos are missing. {_GET}")
    x = np.empty((len(paths), 3, _SIDE, _SIDE), np.uint8)
    for row, path in enumerate(tqdm(paths, "celeba", unit="photo", file=sys.stderr)):
        try:
            with pillow.open(path) as image:
                small = image.resize((_SIDE, _SIDE), pillow.Resampling.BICUBIC)  # Pillow's default since version 7
                x[row] = np.asarray(small.convert("RGB")).transpose(2, 0, 1)
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            text = f"{path} cannot be read as an image ({error}): unpack it again from img_align_celeba.zip"
            raise ValueError(text) from error
    return x


def load(root: str | Path | None = None) -> Faces:
    """All photos, 4.3 GB (chapter 06); `celeba_clients` reads those of some celebrities.

    There is no test split. `root` and errors are those of `celeba_clients`.
    """
    place = _place(root)
    photos, persons, names, known = _tables(place, verify=True)
    y = known[:, names.index(TARGET)].astype(np.int64)
    return Faces(_decode(place, photos), y, columns=names, writer=persons, attributes=known, stats=STATS)


def identities(root: str | Path | None = None, verify: bool = True) -> np.ndarray:
    """Which celebrity each photo shows, int64 (R,) (chapter 06); needs the file identity_CelebA.txt only.

    ``client_statistics(identities(), min_rows=5)`` is the first row of FedCG's Table 1. Parameters and errors are those
    of `celeba_clients`.
    """
    return _identities(_place(root), verify)[1]


def celeba_clients(
    root: str | Path | None = None,
    fraction: Sequence[float] = (0.1, 0.2),
    min_rows: int = 5,
    seed: int = 0,
    verify: bool = True,
) -> Faces:
    """Draw celebrities for training and others for the test, and read their photos (chapter 06).

    Parameters
    ----------
    root : path, optional
        Folder that holds ``celeba`` as torchvision lays it out, or LEAF's folder ``data``. Default: the
        environment variable ``FEDLIB_DATA``, else ``~/.cache/fedlib``.
    fraction : pair of float
        Shares of the celebrities for training and for the test, both of all that have `min_rows` photos. The default
        is FedCG's (Section 4.1). LEAF's own ``--sf`` counts photos instead.
    min_rows : int
        Leave out celebrities with fewer photos, as LEAF does.
    seed : int
        Decides who is drawn.
    verify : bool
        Compare the two text files with their published checksums. False takes a part of CelebA, or stand-ins.

    Returns
    -------
    Faces
        No celebrity is in both splits. Rows are in the order of the files. The default reads 3 in 10 photos, 1.3 GB.

    Raises
    ------
    FileNotFoundError
        A file is missing; says where to get it. Nothing is downloaded.
    ValueError
        A file is damaged or another one; shares that cannot be.

    References
    ----------
    Liu, Luo, Wang, Tang. Deep learning face attributes in the wild. ICCV 2015.
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """
    if len(fraction) != 2:
        raise ValueError(f"fraction must have a share for training and one for the test; got {fraction}")
    place = _place(root)
    photos, persons, names, known = _tables(place, verify)
    parts = [np.flatnonzero(np.isin(persons, group)) for group in split_users(persons, fraction, min_rows, seed)]
    rows, train = np.concatenate(parts), len(parts[0])
    x, y = _decode(place, [photos[row] for row in rows]), known[rows, names.index(TARGET)].astype(np.int64)
    both = (np.split(part, [train]) for part in (x, y, persons[rows], known[rows]))
    (x, x_test), (y, y_test), (persons, persons_test), (known, known_test) = both
    info = replace(STATS, rows=len(y), test_rows=len(y_test))
    return Faces(x, y, x_test, y_test, names, persons, persons_test, known, known_test, stats=info)


# ---- users and attributes ----


def split_users(
    user: ArrayLike, shares: Sequence[float] = (0.6, 0.2, 0.2), min_rows: int = 1, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """Deal users into groups, no user in two of them: for training and for tests on unseen users (chapter 06).

    Parameters
    ----------
    user : array of shape (R,), int
        Whose each row is.
    shares : sequence of float
        Share of the users in each group, at most 1 together; what is left is not used. The default is FedCG's for
        FEMNIST.
    min_rows : int
        Leave out users with fewer rows; shares are of the others.
    seed : int

    Returns
    -------
    tuple of ndarray
        The users of each group, ascending.

    Raises
    ------
    ValueError
        Shares that are not above 0 or are more than 1 together; a group without users.
    """
    parts = [float(share) for share in shares]
    if not parts or not all(0 < part <= 1 for part in parts) or math.fsum(parts) > 1 + 1e-9:
        raise ValueError(f"shares must be above 0 and at most 1 together; got {tuple(parts)}")
    ids, counts = np.unique(np.asarray(user), return_counts=True)
    enough = ids[counts >= min_rows]
    ends = np.floor(np.cumsum(parts) * len(enough) + 0.5 + 1e-9).astype(int)
    if len(enough) < ends[-1] or np.diff(ends, prepend=0).min() < 1:
        raise ValueError(
            f"{len(enough)} of {len(ids)} users have {min_rows} rows or more, too few for shares {tuple(parts)}: a "
            "group would be empty; raise its share or lower min_rows"
        )
    order = _random("split_users", seed).permutation(enough)
    return tuple(np.sort(group) for group in np.split(order, ends)[: len(parts)])


def client_statistics(user: ArrayLike, min_rows: int = 1) -> dict[str, float]:
    """Clients, samples, and mean and standard deviation of the samples a client: FedCG's Table 1 (chapter 06).

    Parameters
    ----------
    user : array of shape (R,)
        Whose each row is: ``identities()``, or of both splits of FEMNIST
        ``np.concatenate([arrays.writer, arrays.writer_test])``.
    min_rows : int
        Leave out users with fewer rows; 5 for CelebA.

    Returns
    -------
    dict
        ``clients``, ``samples``, ``mean`` and ``stdev``, which divides by the number of clients.
    """
    counts = np.unique(np.asarray(user), return_counts=True)[1]
    counts = counts[counts >= min_rows]
    if not len(counts):
        raise ValueError(f"no user has {min_rows} rows or more; lower min_rows")
    return {
        "clients": len(counts),
        "samples": int(counts.sum()),
        "mean": float(counts.mean()),
        "stdev": float(counts.std()),
    }


class AttributeDomains(NamedTuple):
    """Domains made of attributes (chapter 06).

    Attributes
    ----------
    domain : ndarray of shape (R,), int64
        Domain of each photo: its attributes read as binary digits, the first one the highest.
    metadata : ndarray of shape (2^n, n), uint8
        The attributes of each domain, for `fedlib.server.domain_graph.hamming`.
    correlation : dict of str to float
        Correlation of each attribute with Smiling; NaN if one of the two is the same in all photos.
    """

    domain: np.ndarray
    metadata: np.ndarray
    correlation: dict[str, float]


def attribute_domains(
    attributes: ArrayLike, names: Sequence[str], chosen: Sequence[str] = PAPER_ATTRIBUTES
) -> AttributeDomains:
    """One domain for each combination of binary attributes (FedCG Section 4.2.1; chapter 06).

    Parameters
    ----------
    attributes : array of shape (R, number of names)
        0 or 1, such as ``attributes`` of `celeba_clients`.
    names : sequence of str
        What they are, such as ``columns`` of `celeba_clients`.
    chosen : sequence of str
        The n attributes; FedCG's five by default. High_Cheekbones and Mouth_Slightly_Open say much about smiling: look
        at the correlations.

    Returns
    -------
    AttributeDomains

    Raises
    ------
    ValueError
        Names that are not there or are given twice; other values than 0 and 1.
    """
    table, known = np.asarray(attributes), list(names)
    if table.ndim != 2 or table.shape[1] != len(known) or not np.isin(table, (0, 1)).all():
        raise ValueError(f"attributes must be 0 or 1, one column for each of {len(known)} names; got {table.shape}")
    unknown = sorted({*chosen, TARGET} - set(known))
    if unknown or not len(chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(f"choose different attributes out of {known}; got {tuple(chosen)}, unknown are {unknown}")
    own = table[:, [known.index(name) for name in chosen]].astype(np.int64)
    digits = 2 ** np.arange(len(chosen))[::-1]
    metadata = (np.arange(2 ** len(chosen))[:, None] // digits % 2).astype(np.uint8)
    smiling = table[:, known.index(TARGET)]
    centred, truth = own - own.mean(0), smiling - smiling.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = centred.T @ truth / np.sqrt((centred**2).sum(0) * (truth**2).sum())
    return AttributeDomains(own @ digits, metadata, dict(zip(chosen, correlation.tolist(), strict=True)))


# ---- the network ----


def _moments(z: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel of z (B, K, H, W), of shape (K,); `share` (B, K) is each row's, or 0."""
    mean = (z.mean((-2, -1)) * share).sum(0)
    return mean, ((z - mean[:, None, None]).square().mean((-2, -1)) * share).sum(0)


def _shares(real: Tensor) -> Tensor:
    """Share of each row in the moments, (B, ...); a batch may be all padding."""
    return real / real.sum(0).clamp(min=1)


def _affine(z: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Normalise z (B, K, H, W), scale and shift it; gamma and beta are (K,), or (B, K) for each sample."""
    scale = gamma * (variance + _EPS).rsqrt()
    return (z - mean[:, None, None]) * scale[..., None, None] + beta[..., None, None]


class _NormStack(torch.autograd.Function):
    """`_affine` with the `_moments` of z, in as few passes over it as can be: a stack is larger than any cache.

    For g, the gradient, and r = 1 / sqrt(variance + eps), with sums over rows and pixels, the gradient of z is
    ``r (gamma g - share / (H W) (sum(gamma g) + (z - mean) r^2 sum(gamma g (z - mean))))``.
    """

    @staticmethod
    def forward(z, share, gamma, beta):
        mean = (z.mean((-2, -1)) * share).sum(0)
        centred = z - mean[:, None, None]
        out = centred.square()
        r = ((out.mean((-2, -1)) * share).sum(0) + _EPS).rsqrt()
        torch.addcmul(beta[..., None, None], centred, (gamma * r)[..., None, None], out=out)
        return out, centred, r

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, share, gamma, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(share, gamma, *output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, *_):
        share, gamma, centred, r = ctx.saved_tensors
        z = g * centred
        total, product = g.sum((-2, -1)), z.sum((-2, -1))
        own = share * r / (centred.shape[-2] * centred.shape[-1])
        torch.mul(g, (gamma * r)[..., None, None], out=z)
        z.addcmul_(centred, (-own * r.square() * (gamma * product).sum(0))[..., None, None])
        z.sub_((own * (gamma * total).sum(0))[..., None, None])
        return z, None, product * r, total


def _halve(z: Tensor) -> Tensor:
    return F.relu(F.max_pool2d(z, 2, ceil_mode=True))  # ceil: what TensorFlow calls padding "same"


def _block_and_moments(
    x: Tensor, real: Tensor, moments: tuple[Tensor, Tensor] | None, *own: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One block for one client, with given moments or those of the batch, and these moments."""
    weight, bias, gamma, beta, *domains = own
    z = F.conv2d(x, weight, bias, padding=1)
    if domains:
        *modules, lam, w = domains
        vw, vb, vgamma, vbeta = (v * lam for v in modules)  # linear in all: cheaper than to multiply what they give
        z = z + F.conv2d(*_domain_channels(x, vw, w), padding=1) + (w @ vb)[..., None, None]
        gamma, beta = gamma + w @ vgamma, beta + w @ vbeta
    mean, variance = _moments(z, _shares(real)[:, None]) if moments is None else moments
    return _halve(_affine(z, mean, variance, gamma, beta)), mean, variance


def _block_stack(x: Tensor, real: Tensor, *own: Tensor) -> Tensor:
    """`_block` with a client axis first in all tensors: grouped convolutions, and all else, in channels_last."""
    weight, bias, gamma, beta, *domains = own
    clients, batch, outputs = len(x), x.shape[1], bias.shape[1]

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight.flatten(0, 1), bias, padding=1, groups=clients)  # (B, C O, H, W)

    z = convolve(x, weight, bias.flatten())
    gamma, beta = (p.expand(batch, -1, -1) for p in (gamma, beta))  # (B, C, O)
    if domains:
        *modules, lam, w = domains
        vw, *rest = (v * lam.view(-1, *[1] * (v.ndim - 1)) for v in modules)
        b, vgamma, vbeta = (w @ torch.cat(rest, 2)).transpose(0, 1).chunk(3, 2)
        gamma, beta = gamma + vgamma, beta + vbeta
        z = (z + convolve(*_domain_channels(x, vw, w))).add_(b.flatten(1)[..., None, None])
    share = _shares(real.transpose(0, 1)).repeat_interleave(outputs, 1)
    z, *_ = _NormStack.apply(z, share, gamma.flatten(1), beta.flatten(1))
    return _halve(z).unflatten(1, (clients, outputs)).transpose(0, 1)


@stackable(_block_stack)
def _block(x: Tensor, real: Tensor, *own: Tensor) -> Tensor:
    return _block_and_moments(x, real, None, *own)[0]


@dataclass(frozen=True)
class CelebACNN:
    """LEAF's network for CelebA: four blocks, then a dense layer; 31,202 parameters.

    A block is a 3x3 convolution, batch normalisation, max-pooling by 2 that keeps odd borders, and ReLU.

    Parameters
    ----------
    image : (channels, height, width)
    filters : int
        Filters of each convolution.
    blocks : int
    classes : int

    Notes
    -----
    Parameters ``conv1.weight`` (o, i, 3, 3), ``conv1.bias``, ``conv1.gamma`` and ``conv1.beta`` of its normalisation,
    ..., ``dense1.weight``, ``dense1.bias``.

    Normalisation takes mean and variance of the batch, at test too, as LEAF's ``training=True`` does: an answer depends
    on the other rows, and there are no running statistics to average. Rows with ``real = 0``, which are padding, do not
    count. So a test needs one of two rules.

    - `scores_by_client`: all test rows of one client are one batch. This is LEAF's test.
    - `statistics` of training rows stay fixed: ``predict=lambda p, x: net(p | fixed, x)``. Each row is then answered
      by itself, as with running statistics.

    With `net` alone as `predict`, `fedlib.evaluation.evaluate` makes batches of up to 792 rows of all clients: between
    the two, and not the same for other test sets.

    eps is LEAF's 0.001. LEAF feeds pixels from 0 to 255, here they are from 0 to 1, which the first normalisation
    undoes but for eps. Chapter 06.

    References
    ----------
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """

    image: tuple[int, int, int] = (3, _SIDE, _SIDE)
    filters: int = 32
    blocks: int = 4
    classes: int = 2

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine; gamma starts at 1 and beta at 0."""
        shapes = self.shapes()
        drawn = _init({name: shape for name, shape in shapes.items() if name.endswith(("weight", "bias"))}, seed)
        fixed = {n: torch.full(s, float(n.endswith("gamma"))) for n, s in shapes.items() if n not in drawn}
        return {name: (drawn | fixed)[name] for name in shapes}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        inputs, height, width = self.image
        shapes: dict[str, tuple[int, ...]] = {}
        for n in range(1, self.blocks + 1):
            shapes |= {f"conv{n}.weight": (self.filters, inputs, 3, 3)}
            shapes |= {f"conv{n}.{name}": (self.filters,) for name in ("bias", "gamma", "beta")}
            inputs, height, width = self.filters, (height + 1) // 2, (width + 1) // 2
        return shapes | {"dense1.weight": (self.classes, inputs * height * width), "dense1.bias": (self.classes,)}

    def __call__(self, params: Params, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Logits of shape (B, classes) for x of shape (B, *image); `real` (B,) is 0 for padding."""
        x = self._features(params, x, real, self._layer(params))
        return dense(x, params["dense1.weight"], params["dense1.bias"])

    @torch.no_grad()
    def statistics(self, params: Params, x: Tensor) -> Params:
        """Mean and variance of each block over all rows of x, to put into the parameters: ``params | statistics``."""
        found: Params = {}
        self._features(params, x, None, self._layer(params), found)
        return found

    def _layer(self, params: Params) -> Callable[[str], tuple[Tensor, ...]]:
        return lambda layer: tuple(params[f"{layer}.{kind}"] for kind in ("weight", "bias", "gamma", "beta"))

    def _features(
        self,
        params: Params,
        x: Tensor,
        real: Tensor | None,
        own: Callable[[str], tuple[Tensor, ...]],
        found: Params | None = None,
    ) -> Tensor:
        """What the dense layer sees; `own` gives the tensors of a block, and `found` takes its statistics."""
        real = x.new_ones(len(x)) if real is None else (real != 0).to(x)
        for layer in (f"conv{n}" for n in range(1, self.blocks + 1)):
            names = f"{layer}.mean", f"{layer}.variance"
            if found is None and names[0] not in params:
                x = _block(x, real, *own(layer))
            else:
                fixed = None if found is not None else (params[names[0]], params[names[1]])
                x, *moments = _block_and_moments(x, real, fixed, *own(layer))
                if found is not None:
                    found |= zip(names, moments, strict=True)
        return x.flatten(1)


@dataclass(frozen=True)
class CelebANet(DomainNet):
    """`CelebACNN` with a module for each domain in some layers, for `fedlib.algorithms.fedcg.FedCG` (Eq. 4).

    Parameters
    ----------
    net : CelebACNN
        The shared layers.
    layers : tuple of str
        Out of ``conv1`` to ``conv4`` and ``dense1``. FedCG's "last convolution" is ``("conv4",)``, "all" names all.
    domains, classifier, shared, start, lam
        As in `fedlib.client.domain_net.DomainNet`.

    Notes
    -----
    The module of a block holds a convolution and the affine part of its normalisation, with one lambda. What is
    normalised is the sum of Eq. 4, with mean and variance that all domains share; to its gamma and beta then comes
    lambda times those of the sample's domains. The paper says that batch normalisation has domains' parts, not which
    ones: running or batch statistics of single domains are not among them here, as few samples of a batch share one.

    A module's gamma starts at 1, and its beta as its bias, since 0 would never learn behind FedCG's ReLU. The rest
    starts as in `DomainNet`, and at test the rules of `CelebACNN` hold. Give FedCG the loss
    ``lambda p, b, w_d=None: cross_entropy(net(p, b[0], w_d, b[2]), *b[1:])``, so that padding does not count. Its
    teacher "loss" asks for the loss of single rows, which here are batches of one: choose another one. Chapter 06.
    """

    net: CelebACNN  # type: ignore[assignment]  # DomainNet's own nets have no normalisation

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        start = super().init(seed)
        gamma = {n: torch.ones_like(p) for n, p in start.items() if n.startswith("V.") and n.endswith(".gamma")}
        return start | gamma

    def __call__(  # type: ignore[override]  # one more argument at the end
        self, params: Params, x: Tensor, w_d: Tensor | None = None, real: Tensor | None = None
    ) -> Tensor:
        """Logits (B, classes) for x (B, *image), with the weights (B, D), or the student's; `real` is 0 for padding."""
        w_d = (self.weights(params, x) if w_d is None else w_d).to(x)
        x = self.net._features(params, x, real, lambda layer: self._layer(params, layer, w_d))
        own = super()._layer(params, "dense1", w_d)
        return dense(x, *own) if len(own) == 2 else domain_dense(x, *own)

    @torch.no_grad()
    def statistics(self, params: Params, x: Tensor, w_d: Tensor | None = None) -> Params:
        """As `CelebACNN.statistics`, with the weights (B, D), or with the student's."""
        w_d = (self.weights(params, x) if w_d is None else w_d).to(x)
        found: Params = {}
        self.net._features(params, x, None, lambda layer: self._layer(params, layer, w_d), found)
        return found

    def _layer(self, params: Params, layer: str, w_d: Tensor) -> tuple[Tensor, ...]:
        """What a block takes: weight, bias, gamma and beta; with domains also those of V, lambda and w_d."""
        names = [f"{layer}.{kind}" for kind in ("weight", "bias", "gamma", "beta")]
        if layer not in self.layers:
            return tuple(params[n] for n in names)
        modules = [params[f"V.{n}"] for n in names]
        if self.shared:
            return *(params[n] for n in names), *modules, params[f"lam.{layer}"], w_d
        return *(torch.zeros_like(v[0]) for v in modules), *modules, modules[0].new_ones(()), w_d


def scores_by_client(
    net: Callable[..., Tensor], algorithm: "Algorithm", result: "Result", data: ClientData
) -> pd.DataFrame:
    """Accuracy of each client with all its rows as one batch, as LEAF tests batch normalisation (chapter 06).

    Parameters
    ----------
    net : CelebACNN or CelebANet
    algorithm, result, data
        As in `fedlib.evaluation.evaluate`.

    Returns
    -------
    pandas.DataFrame
        ``id``, ``n`` and ``accuracy``, one row a client: `fedlib.evaluation.pooled` gives the accuracy over all photos.
    """

    def errors(params: Params, batch: Batch) -> Tensor:
        x, y, real = batch
        return weighted_mean((net(params, x, real=real).argmax(-1) != y).to(x), real)

    scores = evaluate(replace(algorithm, loss=errors, predict=None), result, data)
    return scores.assign(accuracy=1 - scores["loss"]).drop(columns="loss")

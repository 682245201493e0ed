"""Planted heterogeneity: what a group does is really done, to its samples only, and the same for ever."""

import hashlib
import inspect
import json
import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals
from scipy import ndimage

from fedlib import partition

quick = settings(max_examples=25, deadline=None, derandomize=True)
SEEDS = st.integers(0, 2**32 - 1)

ROWS = 240
Y = np.arange(ROWS) % 10
WRITER = np.random.RandomState(1).randint(0, 15, ROWS) * 10**10 - 7  # ids that need 64 bits, one negative
IMAGES = np.random.RandomState(2).randint(0, 256, (ROWS, 1, 6, 6)).astype(np.uint8)
TABLE = np.random.RandomState(3).standard_normal((ROWS, 7))
BASE = partition.iid(Y, 12, seed=5)

# An example of each partition. A new one needs its line here; a test says what FINGERPRINTS then lacks.
DEAL = {
    "iid": lambda seed=5, y=Y, k=12: partition.iid(y, k, seed),
    "quantity": lambda seed=5, y=Y, k=12: partition.quantity(y, k, 1.0, seed),
    "dirichlet": lambda seed=5, y=Y, k=12: partition.dirichlet(y, k, 0.5, seed),
    "pathological": lambda seed=5, y=Y, k=12: partition.pathological(y, k, seed=seed),
}


def independent(base=BASE, seed=5):
    return partition.label_permutation(base, 4, seed=seed, cyclic=False)


PLANT = {
    "label_permutation": lambda base=BASE, seed=5: partition.label_permutation(base, 4, seed=seed),
    "label_permutation, independent": independent,
    "rotation": lambda base=BASE, seed=5: partition.rotation(base, (0, 90, 180, 270.0, 30), seed=seed),
    "style": lambda base=BASE, seed=5: partition.style(base, shares=(0.4, 0.3, 0.2, 0.1), seed=seed),
    "feature_subsets": lambda base=BASE, seed=5: partition.feature_subsets(base, 7, 3, 2, seed),
    "feature_subsets, unequal": lambda base=BASE, seed=5: partition.feature_subsets(base, 7, (1, 6), seed=seed),
}
MIX = {
    f"mixture of {kind}": lambda base=BASE, seed=5, kind=kind: partition.mixture(PLANT[kind](base, seed), seed=seed)
    for kind in ("label_permutation", "rotation", "style")
}
CHANGED = PLANT | MIX
ALL = DEAL | CHANGED | {"by_user": lambda seed=5: partition.by_user(WRITER, min_rows=14)}  # without the shortest
SEEDED = DEAL | CHANGED | {"split": lambda seed=5: BASE.split(seed=seed)[1]}
# No machine and no version of NumPy may change a partition.
FINGERPRINTS = {
    "iid": "f02d22980e287b17",
    "quantity": "cc11b1aed35aaa43",
    "dirichlet": "2b15bccf7f91921f",
    "pathological": "ed43e5cb98a5e803",
    "by_user": "4c848c2b03ee181d",
    "label_permutation": "b31b4422f8a7c741",
    "label_permutation, independent": "aa5500cd38736519",
    "rotation": "16db1343baac6e2d",
    "style": "f856f88fdfc08734",
    "feature_subsets": "8955f55883a94813",
    "feature_subsets, unequal": "e06247df973b4f80",
    "mixture of label_permutation": "5ee512fca5e654f6",
    "mixture of rotation": "49298d36e90f638e",
    "mixture of style": "933c2fbd7166bdb1",
    "split": "f44390ecaf095091",
}


def features(parts):
    return TABLE if parts.change and parts.change.kind == "feature_subsets" else IMAGES


def slow(parts, client, row, group, x, y):
    """One sample of one client, from the definitions."""
    change, seen, label = parts.change, x[row], y[row]
    if change is None:
        return seen, label
    if change.kind == "label_permutation":
        return seen, change.values[group][label]
    if change.kind == "feature_subsets":
        columns = parts.columns[client]
        return np.append(seen[columns], np.zeros(max(map(len, parts.columns)) - len(columns))), label
    value = change.values[group]
    if change.kind == "rotation":
        if value % 90:
            turned = ndimage.rotate(seen[0].astype(float), value, reshape=False, order=1)[None]
            return np.rint(turned).clip(0, 255).astype(np.uint8), label
        return np.rot90(seen, int(value) // 90, axes=(1, 2)), label
    if value == "noisy":
        random = np.random.RandomState([zlib.crc32(b"noise"), change.seed, row, 0])
        return (seen + random.randint(-128, 128, seen.shape)).clip(0, 255).astype(np.uint8), label
    return {"plain": seen, "inverted": 255 - seen, "low contrast": seen // 4 + 96}[value], label


def examples(data, k):
    return data.x[data.index[k, : data.n[k]]].numpy(), data.y[k, : data.n[k]].numpy()


def check_views(parts, x):
    """Each client sees each row as the definitions say; the rows themselves stay as they were, tensors too."""
    before = x.copy(), Y.copy()
    data, same = parts.clients(x, Y, classes=10), parts.clients(torch.from_numpy(x), torch.from_numpy(Y), classes=10)
    assert data.x.dtype == same.x.dtype and torch.equal(data.x, same.x) and torch.equal(data.y, same.y)
    assert data.id.tolist() == parts.id.tolist()
    for k, (rows, groups) in enumerate(zip(parts.rows, parts.sample_group, strict=True)):
        xs, ys = examples(data, k)
        seen, labels = zip(*(slow(parts, k, r, g, x, Y) for r, g in zip(rows, groups, strict=True)), strict=True)
        assert xs.dtype == x.dtype and np.array_equal(xs, np.stack(seen)) and ys.tolist() == list(labels)
    assert np.array_equal(x, before[0]) and np.array_equal(Y, before[1])


def fingerprint(parts):
    """16 hexadecimal digits that say who holds what, and sees it how."""
    change = parts.change and (parts.change.kind, parts.change.values, parts.change.seed)
    digest = hashlib.sha256(json.dumps(change).encode())
    for array in (parts.id, parts.group, *parts.rows, *parts.sample_group):
        digest.update(np.append(array, len(array)).astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def same(a, b):
    return fingerprint(a) == fingerprint(b)


# -- what holds for every one of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@quick
@given(seed=SEEDS, rows=st.integers(60, 400), k=st.integers(1, 20))
def test_no_row_is_lost_or_dealt_twice(name, seed, rows, k):
    y = np.random.RandomState(seed).randint(0, 5, rows)
    parts, rows = (DEAL[name](seed, y, k), rows) if name in DEAL else (ALL[name](seed=seed), ROWS)
    dealt = np.concatenate(parts.rows)
    assert len(dealt) == len(set(dealt)) and (len(dealt) == rows or name == "by_user")
    assert (name not in DEAL or len(parts.rows) == k) and min(map(len, parts.rows)) >= 1
    assert name != "iid" or np.ptp([len(r) for r in parts.rows]) <= 1
    assert all((np.diff(r) > 0).all() for r in parts.rows)
    assert len(parts.rows) == len(parts.group) == len(parts.id) == len(set(parts.id))
    assert [len(g) for g in parts.sample_group] == [len(r) for r in parts.rows]
    if name not in MIX:
        assert all((g == own).all() for g, own in zip(parts.sample_group, parts.group, strict=True))
    if parts.change is None or name == "feature_subsets, unequal":
        assert not parts.group.any()
    elif name != "feature_subsets":
        assert set(parts.group) == set(range(len(parts.change.values)))


@pytest.mark.parametrize("name", SEEDED | ALL)
def test_same_seed_same_partition(name):
    found = fingerprint((SEEDED | ALL)[name]())
    assert found == FINGERPRINTS.get(name), f'a new partition is entered in FINGERPRINTS as "{name}": "{found}"'
    assert name not in SEEDED or fingerprint(SEEDED[name](seed=6)) != found


def test_no_partition_of_the_folder_is_missing():
    for file in sorted(Path(partition.__file__).parent.glob("[a-z]*.py")):
        things = inspect.getmembers(import_module(f"fedlib.partition.{file.stem}"), inspect.isfunction)
        for name, make in things:
            if make.__annotations__.get("return") is partition.Partition and "seed" in make.__annotations__:
                assert getattr(partition, name, None) is make and name in partition.__all__, f"import {name}"
                assert any(key.split()[0].strip(",") == name for key in ALL), f"an example of {name} is missing"


@pytest.mark.parametrize("name", ALL)
def test_clients_see_what_their_groups_see(name):
    parts = ALL[name]()
    check_views(parts, features(parts))


@pytest.mark.parametrize("name", ALL)
def test_common_test_set_is_seen_as_the_own_group_sees_it(name):
    parts = ALL[name]()
    x, y = features(parts)[:50], np.random.RandomState(0).randint(0, 10, 50)
    before = x.copy()
    data = parts.tests(x, y, classes=10)
    assert data.n.tolist() == [50] * len(parts.rows) and data.id.tolist() == parts.id.tolist()
    for k, main in enumerate(parts.group):
        xs, ys = examples(data, k)
        views = {g: [slow(parts, k, r, g, x, y) for r in range(50)] for g in {main, *parts.sample_group[k]}}
        fits = {g: [np.array_equal(xs[r], v[r][0]) and ys[r] == v[r][1] for r in range(50)] for g, v in views.items()}
        assert np.any(list(fits.values()), 0).all()
        if name not in MIX:
            assert all(fits[main])
    parts.tests(torch.from_numpy(x), torch.from_numpy(y))
    assert np.array_equal(x, before)


# -- groups ------------------------------------------------------------------------------------------------------------


SHARES = [  # a planted partition, the sizes of its groups
    (partition.rotation(partition.iid(Y, 40), shares=(0.4, 0.3, 0.2, 0.1)), [16, 12, 8, 4]),
    (partition.style(partition.iid(Y, 40), shares=(0.97, 0.01, 0.01, 0.01)), [37, 1, 1, 1]),
    (partition.label_permutation(partition.iid(Y, 40), 3), [14, 13, 13]),
    (partition.label_permutation(partition.iid(Y, 3), 3), [1, 1, 1]),
    # 0.29 * 100 is a little less than 29 in floating point; of two equal remainders of 2.4, 7.2 and 38.4 the first wins
    (partition.rotation(partition.iid(Y, 100), (0, 1, 2), (0.29, 0.29, 0.42)), [29, 29, 42]),
    (partition.rotation(partition.iid(Y, 48), (0, 1, 2), (0.05, 0.15, 0.8)), [3, 7, 38]),
]


def test_shares_of_the_groups():
    for parts, sizes in SHARES:
        assert np.bincount(parts.group).tolist() == sizes
    assert not np.array_equal(*(partition.rotation(partition.iid(Y, 40), seed=s).group for s in (1, 2)))


@quick
@given(seed=SEEDS, groups=st.integers(1, 10))
def test_permuted_labels_agree_within_groups_only(seed, groups):
    """Whoever the clients are: unseen ones can be planted with the same conflicts."""
    parts = partition.label_permutation(partition.iid(Y, 12, seed), groups, seed=seed)
    tables = np.array(parts.change.values)
    assert tables.shape == (groups, 10) and (np.sort(tables) == np.arange(10)).all()
    assert all(len(set(new)) == groups for new in tables.T)  # of each class
    assert partition.label_permutation(partition.iid(Y, 30), groups, seed=seed).change == parts.change


def test_label_change_shares_the_features():
    x, y = torch.from_numpy(IMAGES.copy()), torch.from_numpy(Y.copy())
    for parts in (PLANT["label_permutation"](), MIX["mixture of label_permutation"](), BASE):
        assert parts.clients(x, y).x.data_ptr() == parts.tests(x, y).x.data_ptr() == x.data_ptr()
        assert parts.tests(x, y).index.stride(0) == 0
    assert BASE.tests(x, y).y.stride(0) == BASE.tests(x, y).n.stride(0) == 0
    assert len(PLANT["rotation"]().tests(x, y).x) == 5 * ROWS  # once for each group, not for each client


def test_turns_need_no_channels_and_may_be_negative():
    """Of three axes, as of four."""
    parts = partition.rotation(BASE, (90, -90, 0, 180), seed=5)
    assert parts.change.values == (90, 270, 0, 180)
    assert torch.equal(parts.clients(IMAGES[:, 0], Y).x, parts.clients(IMAGES, Y).x[:, 0])


def test_other_angles_turn_the_same_way():
    """Between 0 and 90 degrees a dot on the right goes up, whole numbers stay whole, floats keep their type."""
    dot = np.zeros((2, 1, 9, 9), np.uint8)
    dot[:, :, 4, 7] = 255
    parts = partition.rotation(partition.iid([0, 1], 2), (0, 45))
    for x in (dot, dot.astype(np.float32) / 255, dot.astype(np.int64)):
        seen = parts.clients(x, [0, 1]).x.numpy()
        assert seen.dtype == x.dtype
        turned = seen[int(np.flatnonzero(parts.group == 1)[0]), 0]
        assert np.unravel_index(turned.argmax(), (9, 9)) == (2, 6)
        assert np.array_equal(seen[int(np.flatnonzero(parts.group == 0)[0])], x[0])
    flat = np.zeros((2, 4, 6), np.uint8)
    assert partition.rotation(partition.iid([0, 1], 2), (180, 30)).clients(flat, [0, 1]).x.shape == (2, 4, 6)


@quick
@given(seed=SEEDS, groups=st.integers(1, 3), low=st.integers(1, 3), more=st.integers(0, 4))
def test_feature_subsets(seed, groups, low, more):
    most = min(low + more, 9 // groups)
    parts = partition.feature_subsets(partition.iid(Y, 30, seed), 9, (low, most), groups, seed)
    assert all((np.diff(c) > 0).all() and c[0] >= 0 and c[-1] < 9 for c in parts.columns)
    assert {len(c) for c in parts.columns} <= set(range(low, most + 1))
    pools = [set(np.concatenate([parts.columns[k] for k in np.flatnonzero(parts.group == g)])) for g in range(groups)]
    assert sum(map(len, pools)) == len(set().union(*pools)) and len(set(parts.group)) == groups
    assert max(map(len, pools)) <= -(-9 // groups)
    check_views(parts, np.arange(9)[None] + 100 * np.arange(ROWS)[:, None] + 1)  # numbers that say whence they come


def test_feature_subsets_degenerate_and_independent():
    assert np.array_equal(partition.feature_subsets(BASE, 7, 7).clients(TABLE, Y).x[:20], TABLE[BASE.rows[0]])
    equal, fewer = (partition.feature_subsets(base, 7, np.int64(3)) for base in (BASE, partition.iid(Y, 6)))
    assert {len(c) for c in equal.columns} == {3} and not equal.group.any() and len({*map(tuple, equal.columns)}) > 5
    assert all(map(np.array_equal, fewer.columns, equal.columns))
    assert {len(c) for c in partition.feature_subsets(partition.iid(Y, 60), 7, (2, 4)).columns} == {2, 3, 4}


# -- mixtures ----------------------------------------------------------------------------------------------------------


@quick
@given(seed=SEEDS, fraction=st.floats(0, 1), share=st.floats(0.01, 0.49), clients=st.integers(4, 60))
def test_mixture_proportions(seed, fraction, share, clients):
    base = partition.rotation(partition.iid(Y, clients, seed), seed=seed)
    parts = partition.mixture(base, fraction, share, seed)
    assert np.array_equal(parts.group, base.group)
    assert all(np.array_equal(a, b) for a, b in zip(parts.rows, base.rows, strict=True))
    mixed = [k for k in range(clients) if (parts.sample_group[k] != parts.group[k]).any()]
    assert abs(len(mixed) - fraction * clients) <= 0.5
    for k in mixed:
        counts = np.bincount(parts.sample_group[k], minlength=4)
        other = len(parts.rows[k]) - counts[parts.group[k]]
        assert (counts > 0).sum() == 2 and 1 <= other < counts[parts.group[k]]
        wanted = share * len(parts.rows[k])
        assert abs(other - wanted) <= 0.5 or other == 1 or 2 * (other + 1) >= len(parts.rows[k])


def test_mixed_clients_test_in_proportion():
    """300 rows, 30 of each label: shares of a client's samples, within each label too."""
    parts = partition.mixture(partition.label_permutation(partition.iid(Y, 12), 4), 1, 0.3)
    y = np.arange(300) % 10
    data = parts.tests(np.zeros((300, 1)), y)
    for k, main in enumerate(parts.group):
        mains = data.y[k].numpy() == np.array(parts.change.values[main])[y]
        assert mains.sum() == 210  # .7 of the 20 samples are its main group's
        assert set(np.bincount(y[mains])) == {21}
        runs = np.diff(np.flatnonzero(np.append(mains[np.argsort(y, kind="stable")], True)))
        assert runs.max() <= 2  # spread evenly: no two neighbours in the second group
    tiny = partition.rotation(partition.iid(np.zeros(4), 2), (0, 90))
    assert same(partition.mixture(tiny, 0), tiny)
    most = partition.mixture(partition.rotation(partition.iid(Y, 12), (0, 90)), 1, 0.49)
    assert {(g != m).sum() for g, m in zip(most.sample_group, most.group, strict=True)} == {9}  # of 20, not a half
    pair = partition.mixture(partition.rotation(partition.iid(np.zeros(6), 2), (0, 90)), 1, 0.01)
    assert [(g != m).sum() for g, m in zip(pair.sample_group, pair.group, strict=True)] == [1, 1]


# -- split -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dirichlet", "mixture of style"])
@quick
@given(seed=SEEDS, weights=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_split_conserves_each_client(name, seed, weights):
    whole = partition.dirichlet(Y, 6, 1.0, seed, min_rows=4) if name == "dirichlet" else ALL[name]()
    if min(map(len, whole.rows)) < len(weights):
        weights = [1]
    fractions = np.array(weights) / sum(weights)
    parts = whole.split(fractions, seed)
    assert len(parts) == len(weights)
    for k, (rows, groups) in enumerate(zip(whole.rows, whole.sample_group, strict=True)):
        dealt = np.concatenate([p.rows[k] for p in parts])
        order = np.argsort(dealt)
        assert np.array_equal(dealt[order], rows)
        assert np.array_equal(np.concatenate([p.sample_group[k] for p in parts])[order], groups)
        sizes = np.array([len(p.rows[k]) for p in parts])
        assert sizes.min() >= 1 and ((abs(sizes - fractions * len(rows)) < 1).all() or sizes.min() == 1)
    for p in parts:
        assert all((np.diff(r) > 0).all() for r in p.rows) and p.change == whole.change
        assert np.array_equal(p.id, whole.id) and np.array_equal(p.group, whole.group)


def test_split_of_a_client_does_not_depend_on_the_others():
    a = partition.by_user(WRITER)
    b = partition.by_user(np.append(WRITER, WRITER + 1))  # more writers
    where = {writer: k for k, writer in enumerate(b.id)}
    assert len(b.id) > len(a.id)
    for pa, pb in zip(a.split(seed=4), b.split(seed=4), strict=True):
        for k, writer in enumerate(a.id):
            assert np.array_equal(pa.rows[k], pb.rows[where[writer]])
    assert [len(p.rows[0]) for p in partition.iid(Y, 12).split()] == [12, 4, 4]
    assert [len(p.rows[0]) for p in partition.iid(np.zeros(3), 1).split((0.9, 0.05, 0.05))] == [1, 1, 1]
    assert not same(BASE.split(seed=1)[0], BASE.split(seed=2)[0])
    first = BASE.split()[0]
    assert len({tuple(np.searchsorted(r, f)) for r, f in zip(BASE.rows, first.rows, strict=True)}) > 6  # own draws


def test_split_is_independent_of_the_mixture():
    """With one stream for both, all samples of the second group would lie in the first part."""
    whole = partition.mixture(partition.rotation(partition.iid(np.zeros(2000), 10), seed=0), 1, 0.3, seed=0)
    for part in whole.split((0.5, 0.5), seed=0):
        shares = [(g != m).mean() for g, m in zip(part.sample_group, part.group, strict=True)]
        assert min(shares) > 0.2 and max(shares) < 0.4
    train, test = BASE.split((0.5, 0.5))
    parts = partition.rotation(train).split((0.5, 0.5), seed=1)[0]  # a part is a base too
    assert parts.clients(IMAGES, Y).n.sum() < train.clients(IMAGES, Y).n.sum()
    assert train.clients(TABLE, Y).n.sum() + test.clients(TABLE, Y).n.sum() == ROWS


# -- errors ------------------------------------------------------------------------------------------------------------

PLAIN = partition.iid(np.zeros(4), 2)
TURNED, PERMUTED, STYLED = (PLANT[kind]() for kind in ("rotation", "label_permutation", "style"))
SEVERAL, NAMES_AND_NONE = np.stack([Y, Y], 1), np.array(["a", None, "b"], object)
LABELS = "label_permutation needs class labels, whole numbers, one per row; y holds"
ERRORS = {
    ValueError: {
        "none of the 2 writers has 3 rows or more: lower min_rows": lambda: partition.by_user([1, 2], min_rows=3),
        "has a rotation already; give style one without": lambda: partition.style(TURNED),
        "between 1 and the 2 clients there are; got 0": lambda: partition.style(PLAIN, ()),
        r"shares must .*add up to 1; got \(0.5, 0": lambda: partition.style(BASE, shares=(0.5, 0.4)),
        r"must be positive .* got \(1.0, 0.0\)": lambda: partition.rotation(BASE, (0, 90), (1, 0)),
        "each of the 4 groups; got 2 shares": lambda: partition.style(BASE, shares=(0.5, 0.5)),
        "3 cyclic shifts, too few for 4 groups": lambda: partition.label_permutation(BASE, 4, 3),
        "label 9; labels are .* from 0 to 4": lambda: partition.label_permutation(BASE, 2, 5).clients(IMAGES, Y),
        r"no two .* same turn; got \(0.0, 360.0\)": lambda: partition.rotation(BASE, (0, 360)),
        r"needs images.*width\); got \(7,\): reshape x": lambda: TURNED.clients(TABLE, Y),
        r"90.0 degrees needs square .* got \(4, 6\): crop or pad x": lambda: TURNED.clients(np.zeros((ROWS, 4, 6)), Y),
        "out of plain, inverted, .*'sepia'": lambda: partition.style(BASE, ("plain", "sepia")),
        "must be different ones .* got 'plain'": lambda: partition.style(BASE, "plain"),
        "from 1 to 7, the smallest of 1 pools .* got 8": lambda: partition.feature_subsets(BASE, 7, 8),
        "from 1 to 3, the smallest of 2 pools of 7": lambda: partition.feature_subsets(BASE, 7, 4, 2),
        r"pair \(least, most\) .* got \(4, 2\)": lambda: partition.feature_subsets(BASE, 7, (4, 2)),
        r"for x of shape \(R, 7\); got \(240, 6\)": lambda: PLANT["feature_subsets"]().clients(TABLE[:, :6], Y),
        "give it what label_permutation, rotation or": lambda: partition.mixture(BASE),
        "that are not mixed yet; got 4": lambda: partition.mixture(MIX["mixture of style"]()),
        "at least 2 groups.* got 1 gro": lambda: partition.mixture(partition.rotation(BASE, (9,))),
        r"fraction must lie in \[0, 1\] .* got 1.1 and 0.3": lambda: partition.mixture(TURNED, 1.1),
        "share between 0 and 0.5; got 1 and 0.5": lambda: partition.mixture(TURNED, 1, 0.5),
        "client 0 has 2 .* mixing needs 3; raise min": lambda: partition.mixture(partition.rotation(PLAIN, (0, 90))),
        "client 9 has 2 rows, 3 parts need 3; raise min_rows": lambda: partition.by_user([7, 7, 7, 9, 9]).split(),
        r"fractions must be positive .* got \(0.5, 0.4\)": lambda: PLAIN.split((0.5, 0.4)),
        r"240 rows were .* x has 9; .* common test set goes to tests\(\)": lambda: BASE.clients(TABLE[:9], Y[:9]),
        "x has 9 rows and y has 8": lambda: TURNED.tests(IMAGES[:9], Y[:8]),
        "label 9; .* from 0 to 4$": lambda: BASE.tests(IMAGES, Y, classes=5),
    },
    AttributeError: {"see all columns; make the partition with feature_subsets": lambda: BASE.columns},
    TypeError: {
        "a name a row; got None in row 1: drop such rows": lambda: partition.by_user(NAMES_AND_NONE),
        r"shape \(R,\); got int64 \(1, 2\)": lambda: partition.by_user([[1, 2]]),
        r"shape \(R,\); got <U1 \(1, 1\)": lambda: partition.by_user([["a"]]),
        "rotation needs a Partition.*; got ndarray": lambda: partition.rotation(Y),
        f"{LABELS} torch.float64, one per row": lambda: PERMUTED.clients(IMAGES, Y / 2),
        rf"{LABELS} torch.int64, \(2,\) per row": lambda: PERMUTED.clients(IMAGES, SEVERAL),
        rf"{LABELS} torch.int64, \(2,\) per r": lambda: PERMUTED.tests(IMAGES, SEVERAL),
        "a common test set of a mixture needs class": lambda: MIX["mixture of rotation"]().tests(IMAGES, SEVERAL),
        "needs uint8 images, 0 to 255; got torch.float64: give the bytes": lambda: STYLED.clients(IMAGES / 255, Y),
    },
}


test_errors_say_what_to_change = refusals(ERRORS)

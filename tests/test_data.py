"""Stacking clients, and the plan of local batches."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refusals
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset, random_split
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, datasets, local_batches, partition
from fedlib.algorithms import FedAvg, LocalOnly
from fedlib.data import Pixels, halves
from fedlib.server.transfer import hold_back

TENS = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2) * 10
THREE = fedlib.stack_rows(TENS, [0, 1, 2, 3, 4, 5], [[0, 1, 2], [5], [3, 4]], ids=[7, 3, 5], pixels=True)


def test_rows_stay_bytes_and_become_numbers_when_used():
    assert THREE.x.dtype == torch.uint8 and THREE.x.shape == (6, 2, 2)
    rows, y, w = THREE.all_rows(torch.float64)
    torch.testing.assert_close(rows[0], torch.from_numpy(TENS[:3] / 255))
    assert y.tolist() == [[0, 1, 2], [5, 5, 5], [3, 4, 3]] and w.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


def test_indexing_and_sorting():
    assert THREE.sorted().id.tolist() == [3, 5, 7] and THREE.sorted().n.tolist() == [1, 2, 3]
    some = THREE[[2, 0]]
    assert len(some) == 2 and some.id.tolist() == [5, 7] and some.x is THREE.x and THREE[:1].id.tolist() == [7]
    assert THREE[np.array([2], np.int32)].id.tolist() == THREE[torch.tensor([False, False, True])].id.tolist() == [5]
    for wrong in (1, [], [0.5]):
        with pytest.raises(TypeError, match="slice or a list"):
            THREE[wrong]
    data = fedlib.same_rows(np.zeros((100, 3)), np.zeros(100, int), range(50))
    assert len(data) == 50 and data.x.shape == (100, 3)
    for same in (data, data.to("cpu", torch.float32)):
        assert same.index.untyped_storage().nbytes() == 100 * 8, "the same rows are stored once"


def test_a_batch_is_no_longer_than_its_rows():
    data = client_data(ragged_clients((10, 25)))
    sizes = [x.shape[1] for x, _, _ in local_batches(data, 20, 2, Key(0, 1)).iterate(torch.float64)]
    assert sizes == [20, 10, 20, 10]  # 20 and 5 of one client, beside 10 of the other, which repeats its last batch


def test_rows_may_be_read_backwards():
    """Columns of pandas are below."""
    data = fedlib.stack_rows(np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])[:, ::-1], np.array([0, 1, 0]), [[2], [1]])
    assert data.x[2].tolist() == [6.0, 3.0] and data.y.tolist() == [[0], [1]]


# -- what a model gets -------------------------------------------------------------------------------------------------

RANDOM = np.random.RandomState(0)
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES += ["float16", "float32", "float64", "longdouble", ">i4", ">f8", ">u2"]
Y4 = np.array([0, 1, 2, 0])
WAYS = {
    "stack_rows": lambda x, **more: fedlib.stack_rows(x, Y4, [[0, 1], [2, 3]], **more),
    "stack_clients": lambda x, **more: fedlib.stack_clients([x[:2], x[2:]], [Y4[:2], Y4[2:]], **more),
    "same_rows": lambda x, **more: fedlib.same_rows(x, Y4, [3, 4], **more),
    "clients": lambda x, **more: partition.iid(Y4, 2).clients(x, Y4, **more),
    "tests": lambda x, **more: partition.iid(Y4, 2).tests(x, Y4, **more),
}


def numbers_of(kind):
    """Four rows of a type, with its largest values that are the same in 64 bits."""
    x = RANDOM.randint(0, 100, (4, 2, 3)).astype(kind)
    x[0, 0, 0] = 1 if x.dtype.kind in "bf" else min(np.iinfo(x.dtype).max, np.iinfo(np.int64).max)
    return x


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TYPES)
def test_whole_numbers_stay_whole_and_others_become_those_of_the_run(kind, way):
    x = numbers_of(kind)
    data = WAYS[way](x)
    assert not data.pixels
    for dtype in (torch.float32, torch.float64):
        batch = data.all_rows(dtype)[0]
        assert batch.dtype == (dtype if x.dtype.kind in "bf" else torch.int64)
        wanted = torch.from_numpy(x.astype(np.float64 if x.dtype.kind in "bf" else np.int64)).to(batch.dtype)
        assert torch.equal(batch, wanted[data.index])
    if kind != "uint8":
        with pytest.raises(TypeError, match="pixels=True is for bytes .* which needs no mark"):
            WAYS[way](x, pixels=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tensor", [False, True])
def test_bytes_are_pixels_because_somebody_says_so(way, tensor):
    x = RANDOM.randint(0, 256, (4, 2, 3)).astype(np.uint8)
    given = torch.from_numpy(x) if tensor else x
    for data in [WAYS[way](given, pixels=True)] + ([] if tensor else [WAYS[way](x.view(Pixels))]):
        assert data.pixels and data.x.dtype == torch.uint8
        assert torch.equal(data.all_rows(torch.float64)[0], torch.from_numpy(x / 255)[data.index])
    for data in [WAYS[way](given), WAYS[way](given, pixels=False), WAYS[way](x.view(Pixels), pixels=False)]:
        assert not data.pixels and torch.equal(data.all_rows(torch.float64)[0], torch.from_numpy(x).long()[data.index])
    assert not WAYS[way](x.view(Pixels) / 255).pixels  # what is no byte any more needs no mark


def test_the_mark_goes_with_the_images():
    x = RANDOM.randint(0, 256, (6, 1, 4, 4)).astype(np.uint8).view(Pixels)
    kept = [x[0], x[[2, 1]], x[x[:, 0, 0, 0] > 9], 255 - x, x.reshape(6, -1), x.copy(), np.rot90(x, 1, (2, 3)), x.T]
    kept += [x.reshape(-1, 1, 2, 2, 2, 2).mean((3, 5)).astype(np.uint8), np.stack([x, x]), np.split(x, 2)[0], x // 2]
    kept += [np.concatenate([np.zeros_like(x), np.asarray(x)]), np.repeat(x, 2, 0), np.minimum(x, 9), x.take([0], 0)]
    assert all(isinstance(k, Pixels) and k.dtype == np.uint8 for k in kept)
    lost = [np.asarray(x), (x > 9).astype(np.uint8), np.where(x > 9, x, 0), np.pad(x, 1), x.tolist(), x.max(), x.mean()]
    assert not any(isinstance(v, Pixels) for v in (*lost, datasets.load("wine").x, datasets.load("digits").y))
    assert repr(x.max()) == repr(np.asarray(x).max()) and x.sum() == np.asarray(x).sum()
    for arrays in map(datasets.load, ("mnist5k", "digits")):
        assert isinstance(arrays.x, Pixels) and partition.iid(arrays.y, 3).clients(arrays.x, arrays.y).pixels


def test_the_mark_goes_with_the_clients():
    x = RANDOM.randint(0, 256, (40, 3)).astype(np.uint8)
    data = partition.by_user(np.repeat(["b", "a", "d", "c"], 10)).clients(x, np.arange(40) % 3, pixels=True)
    for some in (data[[2, 0]], data[1:], data[data.id > 1], data.to("cpu", torch.float64), data.sorted()):
        assert some.pixels and some.name.tolist() == [["a", "b", "c", "d"][i] for i in some.id.tolist()]
    more = [data.with_columns(scale=data.y), *halves(data, Key(0), 2), *hold_back(data, 0.3, Key(0))]
    assert all(some.pixels and some.name.tolist() == ["a", "b", "c", "d"] for some in more)


def test_clients_agree_on_what_is_a_pixel():
    x = np.zeros((2, 3), np.uint8)
    for one, other in ((x.view(Pixels), x), (x.view(Pixels), x / 255), (x / 255, x), (x, x.astype(int))):
        with pytest.raises(TypeError, match="clients 3 and 7: only one x holds bytes, or pixels; give one type, or"):
            fedlib.stack_clients([one, one, other], [[0, 1]] * 3, ids=[3, 9, 7])
    assert fedlib.stack_clients([x.view(Pixels), x], [[0, 1]] * 2, pixels=True).pixels


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_whole_numbers_where_a_model_wants_others_are_refused(kind):
    x, y, rows = RANDOM.randint(0, 100, (6, 4)), np.arange(6) % 2, [[0, 1], [2]]
    model = fedlib.models.MLP((4, 2))
    good, bad, narrow = (fedlib.stack_rows(some, y, rows) for some in (x / 99, x.astype(kind), x[:, :3] / 99))
    whole = f"x holds whole numbers \\({kind}\\), which .* as int64, .* pixels=True .* x.astype\\('float32'"
    refused = [(bad, None, f"the loss.*{whole}"), (good, bad, f"predict .* on the test data.*{whole}")]
    for data, tests, words in [*refused, (narrow, None, "Do the model's inputs fit x, and its outputs y\\?$")]:
        with pytest.raises(ValueError, match=words):
            algorithm = FedAvg(classification_loss(model), predict=model)
            fedlib.fit(algorithm, model.init(0), data, 1, eval_data=tests, progress=False)


# -- tables ------------------------------------------------------------------------------------------------------------

KINDS = ["float", "float32", "int", "uint8", "bool", "Int64", "UInt8", "boolean", "Float64", "Float32"]


def column(kind):
    """Five numbers of a type of pandas."""
    numbers = {"f": RANDOM.standard_normal(5), "i": RANDOM.randint(-9, 9, 5), "u": RANDOM.randint(0, 9, 5)}
    return pd.Series((numbers | {"b": RANDOM.rand(5) < 0.5})[kind[0].lower()], dtype=kind)


WORDS = {
    "object": pd.Series(["a", 1, 2.5, "b", "a"], dtype=object),
    "string": pd.Series(list("abcab"), dtype="string"),
    "text": pd.Series(list("abcab")),
    "category": pd.Series(list("abcab"), dtype="category"),
    "date": pd.Series(pd.date_range("2024", periods=5)),
}


@pytest.mark.parametrize("seed", range(40))
def test_columns_of_any_kinds_of_numbers_beside_each_other(seed):
    some = np.random.RandomState(seed).choice(KINDS, 1 + seed % 5)
    table, y = pd.concat(map(column, some), axis=1), column(some[0])
    y = y.abs() if some[0] in ("int", "Int64") else y  # labels
    for targets in (y, y.to_frame()):
        data = fedlib.stack_rows(table, targets, [[4, 0], [2]])
        assert torch.equal(data.x.double(), torch.from_numpy(table.to_numpy(float).copy()))
        assert torch.equal(data.y.double(), torch.from_numpy(y.to_numpy(float))[data.index])
        assert data.y.is_floating_point() == some[0].lower().startswith("float")
        whole = not any(kind.lower().startswith("float") for kind in some) and "int" in "".join(some).lower()
        assert data.all_rows(torch.float32)[0].dtype == (torch.int64 if whole else torch.float32)


@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float64", "float"])
def test_missing_values_are_refused_with_their_row(kind):
    table = pd.DataFrame({"a": np.arange(5.0), "b": column(kind).array}, index=list("vwxyz"))
    table.iloc[3, 1] = np.nan if kind == "float" else pd.NA
    for x, y, what in ((table, Y4[:5], "x"), (np.zeros((5, 1)), table["b"], "y")):
        with pytest.raises(ValueError, match=f"{what} has a missing, NaN or infinite value in row 3; drop or impute"):
            fedlib.stack_rows(x, y, [[0]])


@pytest.mark.parametrize("kind", WORDS)
def test_columns_without_numbers_are_refused_by_name(kind):
    table = pd.DataFrame({"age": np.arange(5), "where": WORDS[kind]})
    for x, y, what in ((table, np.arange(5), "x"), (np.zeros((5, 1)), table["where"], "y")):
        with pytest.raises(TypeError, match=f"{what} must hold numbers, but its column 'where' is .*get_dummies"):
            fedlib.stack_rows(x, y, [[0]])
    if kind != "date":
        fine = fedlib.stack_rows(pd.get_dummies(table, columns=["where"]), pd.factorize(table["where"])[0], [[0, 4]])
        assert fine.x.shape[1] > 2 and fine.y.max() <= 3


# -- data sets of torch ------------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter([NINE[i] for i in range(9)])


X9, Y9 = torch.from_numpy(RANDOM.standard_normal((9, 2, 3))), torch.from_numpy(RANDOM.randint(0, 3, 9))
NINE = TensorDataset(X9, Y9)
SETS = {
    "a data set": (lambda: NINE, range(9)),
    "a subset": (lambda: Subset(NINE, [5, 0, 7]), [5, 0, 7]),
    "a part of a random split": (lambda: random_split(NINE, [4, 5], torch.Generator().manual_seed(3))[1], None),
    "a list of pairs": (lambda: [(X9[i].numpy(), int(Y9[i])) for i in range(9)], range(9)),
    "pairs in lists": (lambda: [[X9[i], Y9[i]] for i in range(9)], range(9)),
    "a stream": (Stream, range(9)),
    "a loader": (lambda: DataLoader(NINE, 4), range(9)),
    "a loader that shuffles and drops": (lambda: DataLoader(NINE, 4, shuffle=True, drop_last=True), range(9)),
    "a loader of a subset": (lambda: DataLoader(Subset(NINE, [8, 1, 2]), 2, shuffle=True), [8, 1, 2]),
    "a loader with a sampler": (lambda: DataLoader(NINE, 2, sampler=SubsetRandomSampler([6, 4, 2])), [2, 4, 6]),
    "a loader of a stream": (lambda: DataLoader(Stream(), 2), range(9)),
}


@pytest.mark.parametrize("name", SETS)
def test_a_client_may_be_a_data_set(name):
    make, rows = SETS[name]
    source = make()
    rows = list(source.indices if rows is None else rows)
    data = fedlib.stack_clients([TensorDataset(X9[:2] + 1, Y9[:2]), source], ids=[4, 9], classes=3)
    plain = fedlib.stack_clients([X9[:2] + 1, X9[rows]], [Y9[:2], Y9[rows]], ids=[4, 9])
    assert torch.equal(data.x, plain.x) and torch.equal(data.y, plain.y) and torch.equal(data.index, plain.index)
    assert data.id.tolist() == [4, 9] and not data.pixels


def test_items_may_be_numbers_of_any_type():
    data = fedlib.stack_clients([[(1.5, 2.5), (3.0, 4.0)], [(np.float32(5), torch.tensor(6.0))]])
    assert data.x.tolist() == [1.5, 3.0, 5.0] and data.y.tolist() == [[2.5, 4.0], [6.0, 6.0]]
    ids = fedlib.stack_clients([[(7, 1), (8, 0)]]).all_rows(torch.float32)[0]
    assert ids.tolist() == [[7, 8]] and ids.dtype == torch.int64
    data = fedlib.stack_clients([np.array([[2049], [4097]]), np.array([[0.5]], np.float16)], [[70000, 3], [0.25]])
    assert data.x.flatten().tolist() == [2049, 4097, 0.5] and data.y[0].tolist() == [70000, 3]
    for row in (torch.ones(2, requires_grad=True), torch.ones(2).bfloat16()):
        assert fedlib.stack_clients([[row, row]], [[0, 1]]).x.dtype == row.dtype


def test_images_of_pil_are_pixels_with_channels_first():
    image = pytest.importorskip("PIL.Image")
    grey, colour = RANDOM.randint(0, 256, (5, 4, 6)).astype(np.uint8), RANDOM.randint(0, 256, (5, 4, 6, 3)).astype("u1")
    for photos, wanted in ((grey, grey[:, None]), (colour, colour.transpose(0, 3, 1, 2))):
        data = fedlib.stack_clients([[(image.fromarray(a), k) for k, a in enumerate(photos)]])
        assert data.pixels and torch.equal(data.x, torch.from_numpy(wanted))
    for mode in ("P", "1", "I;16", "F"):
        with pytest.raises(TypeError, match=f"of mode '{mode}' has no colour bytes; use image.convert"):
            fedlib.stack_clients([[(image.new(mode, (3, 3)), 0)]])


def two(a, b):
    return [(a, 0), (b, 1)]


REPEATS = torch.utils.data.WeightedRandomSampler([1.0] * 9, 40)
REFUSED = {
    ValueError: {
        r"x of different kinds, \(2, 3\) of": two(np.zeros((2, 3)), np.zeros((3, 3))),
        "uint8 and .*float64; give all one": two(np.zeros(2, np.uint8), np.zeros(2)),
        r"x of different kinds, \(2,\) of uint8; give": two(np.zeros(2, "u1").view(Pixels), np.zeros(2, "u1")),
        "different kinds.* torch.float32": two(torch.zeros(2), np.zeros(2, "f4")),
        r"items have y of different kinds, \(2,\) of int64 and": [(1.0, [1, 2]), (2.0, [1])],
    },
    TypeError: {
        r"client 0: .* pairs \(x, y\); got a tuple, ": TensorDataset(X9),
        "got a tuple": TensorDataset(X9, Y9, Y9),
        "got a dict, {'img': 1, 'label': 0}: make a list of pairs": [{"img": 1, "label": 0}],
        "got a ndarray": np.zeros((4, 2)),
        "got none": [],
        "x of client 0 must hold numbers": [("a", 0)],
        "y of client 0 must hold numbers": [(1.0, "cat")],
        "draws or .* its own way; give its dataset": DataLoader(NINE, 2, sampler=REPEATS),
        "collates in its own way": DataLoader(NINE, 2, collate_fn=lambda b: b),
        "draws or collates": DataLoader(NINE, batch_sampler=[[0, 1]]),
    },
}


test_items_that_do_not_fit_are_refused = refusals(REFUSED, lambda source: fedlib.stack_clients([source]))


# -- several labels or targets a row -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("real", [False, True])
def test_y_of_any_shape_goes_with_its_rows(shape, real):
    random = np.random.RandomState(1)
    x, y = random.standard_normal((30, 2)), random.randint(0, 5, (30, *shape))
    y = y + 0.5 if real else y
    plain = y[:, 0] if shape == (1,) else y  # one column is one label a row
    parts = partition.iid(y, 4, seed=2)
    data = parts.clients(x, y)
    assert data.y.shape == (4, 8, *plain.shape[1:])
    some = data.with_columns(row=data.index)[[2, 0]].to("cpu", torch.float64)
    for batch in local_batches(some, 3, 2, Key(0, 1)).iterate(torch.float64):
        assert torch.equal(batch[1], torch.from_numpy(plain)[batch[3]])
    for half in halves(data, Key(0), 3):
        assert torch.equal(half.y, torch.from_numpy(plain)[half.index])
    common = parts.tests(x, y)
    assert common.y.stride(0) == 0 and torch.equal(common.y[1], torch.from_numpy(plain))
    xs, ys = [x[r] for r in parts.rows], [y[r] for r in parts.rows]
    stacked, same = fedlib.stack_clients(xs, ys), fedlib.same_rows(x, y, [0, 1])
    assert torch.equal(stacked.y, data.y) and torch.equal(same.y[1], torch.from_numpy(plain))


def test_left_out_labels_stay():
    y = np.array([[1, -100, 2], [-100, 0, -100]])
    assert fedlib.stack_rows(np.zeros((2, 1)), y, [[1, 0]], classes=3).y.tolist() == [[[-100, 0, -100], [1, -100, 2]]]


def test_a_column_that_scales_the_loss_is_a_rate_for_each_client(clients):
    """What the error for lr=[...] proposes, against a run of each client with a rate of its own."""
    params, predict, _ = twin("MLP")
    data, rates, loss = client_data(clients), [0.01, 0.3, 0.1, 0.2, 0.05, 0.4, 0.02, 0.15], classification_loss(predict)

    def fit(loss, lr, data):
        return fedlib.fit(LocalOnly(loss, lr=lr, batch_size=8, epochs=2), params, data, 2, progress=False).state.local

    columns = torch.tensor(rates, dtype=torch.float64)[:, None].expand_as(data.y)
    together = fit(lambda p, batch: batch[3][0] * loss(p, batch[:3]), 1.0, data.with_columns(rate=columns))
    for k, rate in enumerate(rates):
        assert largest_difference(fit(loss, rate, data[[k]]), {n: p[[k]] for n, p in together.items()}) <= 1e-12


@pytest.mark.parametrize("mode", ["L", "P"])
def test_a_mask_of_pil_is_a_label_a_pixel(mode):
    image = pytest.importorskip("PIL.Image")
    data = fedlib.stack_clients([[(image.new("RGB", (5, 4)), image.new(mode, (5, 4), 2))]])
    assert data.x.shape == (1, 3, 4, 5) and data.y.tolist() == [[[[2] * 5] * 4]]
    listed = fedlib.stack_clients([[image.new("RGB", (5, 4))] * 2], [[0, 1]])
    assert listed.x.shape == (2, 3, 4, 5) and listed.pixels

"""Tables shared out among clients: which rows and columns each holds, how they are scaled, and what is planted."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refusals

from book.experiments.fedsgcnn_tables import red_wine
from book.experiments.tabular import PLANTS, SETTINGS, TABLES, Table, deal, table
from fedlib import datasets

DATA = os.environ.get("FEDLIB_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="needs the real files: FEDLIB_DATA is not set")
BLOCKS = ((0,), (1, 2, 5), (3,), (4, 6), (7,), (8,))  # one-hot blocks apart from each other, too
NAMES = ("a", "b=x", "b=y", "c", "d=0", "b=z", "d=1", "e", "f")
SIZES = {"clients": 5, "rows": 6, "features": 2, "validation": 3, "hold_out": 8}


def toy(rows=60, classes=False):
    """A table; column f is constant, and y of `classes` is the row number: it tells which rows a client holds."""
    rng = np.random.default_rng(3)
    x = rng.normal(2, 3, (rows, 9)).astype(np.float32)
    for block in BLOCKS:
        if len(block) > 1:
            x[:, block] = np.eye(len(block))[rng.integers(len(block), size=rows)]
    x[:, 8] = 0.1
    y = np.arange(rows) if classes else rng.normal(20, 7, rows).astype(np.float32)
    return Table("toy", x, y, NAMES, BLOCKS, rows if classes else None)


def parts(dealt):
    return [p for p in (dealt.train, dealt.validation, dealt.test) if p is not None]


def features(data):
    """x of shape (K, n, width); all clients have as many rows."""
    return data.x[data.index]


# ---- tables ----


def test_raw_columns_are_left_out(monkeypatch):
    """Of a small table with the columns of Obesity. A one-hot block is one raw column."""
    columns = ("Gender=Female", "Gender=Male", "Age", "Height", "FAVC", "MTRANS=Bike", "MTRANS=Bus", "MTRANS=Walking")
    x = np.random.default_rng(0).uniform(15, 60, (42, 8)).astype(np.float32)
    x[:, :2], x[:, 5:] = np.eye(2)[np.arange(42) % 2], np.eye(3)[np.arange(42) % 3]
    arrays = datasets.Arrays(x, np.arange(42) % 7, columns=columns, stats=datasets.stats("obesity"))
    monkeypatch.setattr(datasets, "load", lambda *_: arrays)
    obesity = table("obesity")
    assert obesity.blocks == ((0, 1), (2,), (3,), (4,), (5, 6, 7)) and obesity.classes == 7
    t = table("obesity", without=("Gender", "Height"))
    assert t.columns[:2] == ("Age", "FAVC") and t.blocks == ((0,), (1,), (2, 3, 4))
    assert np.array_equal(t.x, obesity.x[:, [2, 4, 5, 6, 7]]) and np.array_equal(t.y, obesity.y)
    with pytest.raises(ValueError, match=r"obesity has no raw column Weight; it has Gender, Age, Height"):
        table("obesity", without=("Height", "Weight"))
    with pytest.raises(ValueError, match="unknown table 'mnist'; known: boston, wine_quality"):
        table("mnist")


def test_what_clients_do_not_hold_is_held_out():
    """The papers' other settings stand in `test_fedsgcnn`."""
    for name, s in SETTINGS.items():
        assert name in TABLES and s.clients * s.rows + s.hold_out == datasets.stats(name).rows


# ---- rows ----


@pytest.mark.parametrize(("overlap", "seed"), [(False, 0), (True, 1)])
def test_no_row_leaks(overlap, seed):
    sizes = SIZES | ({"clients": 9, "rows": 20, "validation": 12} if overlap else {})
    dealt = deal(toy(classes=True), **sizes, overlap=overlap, seed=seed)
    train, further, test = (p.y.numpy() for p in parts(dealt))
    assert (test == test[0]).all() and len(set(test[0])) == sizes["hold_out"]
    assert train.shape == (sizes["clients"], sizes["rows"])
    assert further.shape == (sizes["clients"], sizes["validation"])
    for mine, own in zip(train, further, strict=True):
        assert len({*mine, *own, *test[0]}) == len(mine) + len(own) + len(test[0])
    held = np.concatenate([train.ravel(), further.ravel()])
    if overlap:  # everything outside the hold-out is in somebody's hands, and clients differ
        assert set(held) == set(range(60)) - set(test[0]) and len({tuple(r) for r in train}) == len(train)
    else:
        assert len(set(held)) == len(held)


def test_the_hold_out_is_the_settings_or_a_fifth():
    assert deal(toy(), 2, 3, 2).test.n.tolist() == [12, 12] and deal(toy(), 2, 3, 2).validation is None
    assert deal(replace(toy(150), name="obesity"), 2, 3, 2).test.n.tolist() == [111, 111]
    dealt = deal(toy(classes=True), 5, 6, 2, validation=4, hold_out=10)  # all rows can be dealt
    assert set(np.concatenate([dealt.train.y.ravel(), dealt.validation.y.ravel(), dealt.test.y[0]])) == set(range(60))


# ---- columns and scaling ----


def standardised(values, own):
    """What a column or a target becomes by the mean and the deviation of a client's own; a constant is centred only."""
    own = own.astype(float)
    sd = 1 if len(set(own)) == 1 else math.sqrt(sum((v - own.mean()) ** 2 for v in own) / len(own))
    return (values - own.mean()) / sd


@pytest.mark.parametrize(("held_features", "overlap"), [(2, False), ((1, 3), True)])
def test_parts_equal_a_loop_over_clients(held_features, overlap):
    t, ids = toy(), toy(classes=True)
    dealt, rows = (deal(some, **SIZES | {"features": held_features}, overlap=overlap, seed=2) for some in (t, ids))
    assert dealt.train.x.shape[1] == int(dealt.widths.max()) and len(set(dealt.widths.tolist())) > 1
    near = {"atol": 2e-6, "rtol": 1e-6}
    for k in range(5):
        mine = rows.train.y[k].numpy()
        columns = sorted(c for raw in dealt.columns[k] for c in BLOCKS[raw])
        assert dealt.widths[k] == len(columns) and (np.diff(dealt.columns[k]) > 0).all()
        for data, which in zip(parts(dealt), parts(rows), strict=True):
            x, held = features(data)[k].numpy(), which.y[k].numpy()
            for place, c in enumerate(columns):
                np.testing.assert_allclose(x[:, place], standardised(t.x[held, c], t.x[mine, c]), **near)
            assert (x[:, len(columns) :] == 0).all()
            np.testing.assert_allclose(data.y[k].numpy(), standardised(t.y[held], t.y[mine]), **near)


def test_constant_columns_and_targets_are_centred_only():
    dealt = deal(replace(toy(), y=np.full(60, 0.1, np.float32)), 3, 4, 6, validation=2, hold_out=8)
    for p in parts(dealt):
        assert (features(p)[..., 8] == 0).all() and (p.y == 0).all() and p.x.isfinite().all()


def test_clients_draw_from_the_pool_of_their_group():
    dealt = deal(toy(), 12, 3, 3, hold_out=20, groups=2, seed=1)
    assert sorted(np.bincount(dealt.group)) == [6, 6]
    pools = [{c for own, g in zip(dealt.columns, dealt.group, strict=True) if g == h for c in own} for h in (0, 1)]
    assert pools[0] | pools[1] == set(range(6)) and not pools[0] & pools[1]
    assert all(len(own) == 3 for own in dealt.columns) and (deal(toy(), 4, 3, 3).group == 0).all()


# ---- plants ----


CHANGES = {"scale": lambda y, strength: y * math.exp(-2 * strength), "sign": lambda y, strength: -y if strength else y}


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_plants_are_exact_in_all_parts(kind, strength):
    t, sizes = toy(), SIZES | {"groups": 2}
    plain, dealt = deal(t, **sizes, seed=7), deal(t, **sizes, plant=kind, strength=strength, seed=7)
    assert (plain.planted == 0).all() and dealt.planted.sum() == 2  # of 5
    for a, b in zip(parts(plain), parts(dealt), strict=True):
        assert torch.equal(a.x, b.x)
        for k in range(5):
            expected = CHANGES[kind](a.y[k], strength) if dealt.planted[k] else a.y[k]
            torch.testing.assert_close(b.y[k], expected, atol=1e-6, rtol=1e-6)
            assert torch.equal(b.y[k], a.y[k]) == (strength == 0 or not dealt.planted[k])


# ---- errors ----


ERRORS = {
    r"6 x \(6 \+ 3\) rows and a hold-out of 8 are more than the 60 .* set overlap=True": {"clients": 6},
    r"1 x \(50 \+ 3\) rows and a hold-out of 8 are more than the 60 rows": {"rows": 50, "overlap": True},
    "hold_out must be a whole number of at least 1; got 0": {"hold_out": 0},
    "rows must be a whole number of at least 2; got 1": {"rows": 1},
    "validation must be a whole number of at least 0; got -1": {"validation": -1},
    "from 1 to 3, the smallest of 2 pools of 6 columns": {"features": 4, "groups": 2},
    "plant must be None, or .* one of scale, sign; got 'shift'": {"plant": "shift"},
    "strength must be a number of at least 0; got -1": {"plant": "scale", "strength": -1},
    "plant must be None, or for a regression .* got 'scale'": {"plant": "scale", "table": toy(classes=True)},
}


test_errors = refusals({ValueError: ERRORS}, lambda change: deal(**({"table": toy()} | SIZES | change)))


# ---- the paper's settings ----


def real(name):
    try:
        return table(name)
    except FileNotFoundError as error:
        pytest.skip(f"needs the real files: {error}")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("clustered", [False, True])
def test_the_papers_settings_fit_their_tables(name, clustered):
    t, s = real(name), SETTINGS[name]
    dealt = deal(t, s.clients, s.rows, s.features, groups=s.groups if clustered else 1)
    assert dealt.train.n.tolist() == [s.rows] * s.clients and dealt.test.n.tolist() == [s.hold_out] * s.clients
    assert all(len(own) == s.features for own in dealt.columns) and dealt.test.x.isfinite().all()
    assert set(dealt.group) == set(range(s.groups if clustered else 1))


@needs_data
@pytest.mark.parametrize(("name", "repeated", "blocks"), [("wine_quality", 1179, 11), ("obesity", 24, 16)])
def test_real_files(name, repeated, blocks):
    t = real(name)
    assert len(t.x) - len(np.unique(np.column_stack([t.x, t.y]), axis=0)) == repeated
    assert len(t.blocks) == blocks and t.classes == 7
    if name == "obesity":
        assert sorted(map(len, t.blocks))[-2:] == [2, 5]
        assert len(table(name, without=("Height", "Weight")).blocks) == 14


@needs_data
def test_red_wines_are_those_of_the_file():
    files = sorted(Path(DATA).rglob("winequality-red.csv"))
    if not files:
        pytest.skip("winequality-red.csv is not there")
    red, rows = red_wine(), np.loadtxt(files[0], delimiter=";", skiprows=1)
    assert np.allclose(red.x, rows[:, :-1]) and len(red.y) == len(rows) == 1599
    assert len(set(zip(rows[:, -1], red.y.tolist(), strict=True))) == 6  # qualities 3 to 8, and their classes

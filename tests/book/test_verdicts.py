"""Each published figure has a verdict by the rule, and each figure of ours on the page comes from a result file."""

import json
import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from refusals import refusals

from book.experiments import verdicts
from tools.notebooks import ROOT

# Digits that are no figures: where something stands, and a name.
PLACE = r"l2 distance|(chapters?|experiments?|Experiments?|Tables?|Figures?|figures?|Eq\.) \d+(( and |, )\d+)*"


@pytest.fixture(scope="module")
def rows():
    return verdicts.read()


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Copies of the stored results and of both tables, which a test may change."""
    for name in ("RESULTS", "FOLDER"):
        folder = getattr(verdicts, name)
        monkeypatch.setattr(verdicts, name, tmp_path / folder.name)
        shutil.copytree(folder, tmp_path / folder.name)
    verdicts._load.cache_clear()
    yield tmp_path
    verdicts._load.cache_clear()


# ---- the files ----


def test_every_row_has_a_verdict_and_a_reason(rows):
    settings = rows["method"] == "data"
    assert (~settings).sum() == 100 and set(rows["verdict"][~settings]) <= set(verdicts.WORDS)
    assert settings.sum() == 25 and set(rows["verdict"][settings]) <= set(verdicts.SETTING)
    assert rows["reason"].str.fullmatch(r"[A-Z].*\.").all(), "a plain sentence"
    assert ((rows["verdict"] == "not run") == ~rows["result"].map(verdicts.is_there)).all()


def test_no_figure_is_typed_into_a_reason(rows):
    assert not rows["reason"].str.replace(PLACE, "", regex=True).str.contains(r"\d").any()


def test_a_missing_row_is_found(copies):
    path = copies / "paper/verdicts.csv"
    lines = path.read_text(encoding="utf8").splitlines(keepends=True)
    path.write_text("".join(lines[:5] + lines[6:]), encoding="utf8")
    with pytest.raises(ValueError, match="the rows of published.csv"):
        verdicts.read()


NOWHERE = ["99_nothing.json: x", "cfl_photos.json: @nothing", "fedsgcnn_paper.json: Boston/x", "Boston"]


test_a_result_that_leads_nowhere_is_named = refusals({KeyError: {re.escape(r): r for r in NOWHERE}}, verdicts.ours)


def test_written_again_it_is_the_same(copies, capsys):
    path = copies / "paper/verdicts.csv"
    before = path.read_bytes()
    verdicts.main()
    assert path.read_bytes() == before, "results have changed; run python -m book.experiments.verdicts"
    assert capsys.readouterr().out.startswith("0 verdicts changed")
    assert {p.name for p in path.parent.iterdir()} == {p.name for p in (ROOT / "book/paper").iterdir()}


# ---- the page ----


def test_ours_is_read_from_the_result_file(copies):
    before, path = verdicts.table(), copies / "results/fedsgcnn_paper.json"
    record = json.loads(path.read_text(encoding="utf8"))
    scores = record["figures"]["Wine"]["Standalone"]["each cluster, own rows"]
    scores |= dict.fromkeys(scores, 0.125)
    path.write_text(json.dumps(record), encoding="utf8")
    verdicts._load.cache_clear()  # it is read anew
    after = verdicts.table()
    (place,) = np.flatnonzero(before["ours"] != after["ours"])
    cell = ["Wine", "random features", "Standalone", "12.50 ± 0.00"]
    assert after.loc[place, ["dataset", "setting", "method", "ours"]].tolist() == cell


# ---- the rule ----


def row(value, half=math.nan, metric="accuracy_pct", method="new", **more):
    cells = {"paper": "p", "table": "t", "dataset": "d", "setting": "", "method": method, "metric": metric}
    return cells | {"value": value, "half_width": half, "result": method, "against": "", "reason": "r"} | more


def judged(monkeypatch, ours, *cells):
    """Verdict of the first row, where each row's result is named like its method."""
    monkeypatch.setattr(verdicts, "ours", lambda result: np.array(ours[result], float))
    rows = pd.DataFrame(cells)
    return verdicts.judge(rows, rows.loc[0])


def against_old(monkeypatch, new, old, *more, paper=45):
    """Verdict and reason of 50 in the paper against 45, where we have these runs of both."""
    cells = row(50, 1, against="old"), row(paper, 1, method="old"), *more
    return judged(monkeypatch, {"new": new, "old": old}, *cells)


def points(value):
    """The row of a difference."""
    return row(value, metric="accuracy_points")


SINGLE = [
    (row(50, 3), [0.53, 0.54, 0.55], "reproduced"),
    (row(50, 1), [0.53, 0.54, 0.55], "not reproduced"),
    (row(50), [0.539, 0.54, 0.541], "not reproduced"),
    (row(52.5), [0.539, 0.54, 0.541], "reproduced"),  # within the slack
    (row(50, 3), [0.3, 0.5, 0.7], "undecided"),  # too wide to miss
    (row(74, 30.9), [0.46, 0.47, 0.48], "undecided"),  # the published one is
    (row(74, 20), [0.46, 0.47, 0.48], "not reproduced"),  # it is, and missed all the same
    (row(60, 3), [0.30, 0.35, 0.40], "not reproduced"),  # wide, and missed all the same
    (row(50), [0.5], "undecided"),  # one run
    (row(50), [0.545], "undecided"),
    (row(50), [0.63], "not reproduced"),  # and far from it
    # a difference needs its sign
    (points(1.0), [0.010, 0.011, 0.009], "reproduced"),
    (points(1.0), [0.00, 0.02, 0.01], "undecided"),  # it overlaps, but may as well be nothing
    (points(20.0), [0.010, 0.011, 0.009], "direction holds"),
    (points(-20.0), [0.010, 0.011, 0.009], "not reproduced"),
    (points(25.0), [0.26], "direction holds"),  # one run, but by more than chance
]


@pytest.mark.parametrize(("cell", "ours", "word"), SINGLE)
def test_a_single_figure(monkeypatch, cell, ours, word):
    assert judged(monkeypatch, {"new": ours}, cell)[0] == word


LEVEL = [0.49, 0.50, 0.51]
AGAINST = [  # ours of both methods, theirs of the old one, and what the reason says and does not say
    ([0.81, 0.82, 0.83], [0.71, 0.72, 0.73], 45, "direction holds", "new is above old", "below"),
    ([0.81, 0.82, 0.83], [0.70, 0.95, 0.80], 45, "not reproduced", "new is above old", "below"),  # not for certain
    ([0.60, 0.80, 0.99], [0.50, 0.70, 0.90], 45, "direction holds", "new is above old", "below"),  # seed by seed
    ([0.30, 0.50, 0.70], [0.50, 0.40, 0.60], 45, "undecided", "new is above old", "below"),  # too wide, no direction
    ([0.82], [0.71], 45, "direction holds", "new is above old", "below"),
    ([0.82], [0.73], 45, "not reproduced", "new is above old", "below"),  # one run each: that may be chance
    ([0.81, 0.82, 0.83], [0.91, 0.92, 0.93], 55, "direction holds", "", "margin"),  # the order of the paper counts
    (LEVEL, [0.44, 0.45, 0.46], 45, "reproduced", "", "margin"),  # the level, and the difference
    (LEVEL, [0.47, 0.49, 0.51], 45, "level holds", "", "margin"),  # the level alone
    (LEVEL, [0.54, 0.55, 0.56], 45, "level holds", "below", "margin"),  # and the other direction
    (LEVEL, [0.24, 0.25, 0.26], 45, "level holds", "margin", "below"),  # and four times the difference
]


@pytest.mark.parametrize(("new", "old", "paper", "word", "said", "unsaid"), AGAINST)
def test_a_direction_and_a_level(monkeypatch, new, old, paper, word, said, unsaid):
    found, reason = against_old(monkeypatch, new, old, paper=paper)
    assert found == word and said in reason and unsaid not in reason


def test_the_compared_row_is_that_of_the_same_setting(monkeypatch):
    other = row(99, 1, method="old", setting="other")
    found, _ = against_old(monkeypatch, [0.81, 0.82, 0.83], [0.71, 0.72, 0.73], other)
    assert found == "direction holds"


SEEDS = [
    (row(50, 3), [0.3, 0.5, 0.7], "18"),  # a half width of ten points: 2.11 of 0.2 over the root of 18
    (points(1.0), [0.00, 0.02, 0.01], "7"),  # until the sign is certain
    (points(1.0), [-0.02, 0.02, 0.0], "more than 1000"),
    (row(50, 3), [0.53, 0.54, 0.55], ""),
    (row(50, 30), [0.53, 0.54, 0.55], ""),  # no seed of ours narrows the published interval
    (points(1.0), [0.0], ""),  # one run has no spread
]


@pytest.mark.parametrize(("cell", "ours", "seeds"), SEEDS)
def test_how_many_seeds_would_decide(monkeypatch, cell, ours, seeds):
    monkeypatch.setattr(verdicts, "ours", lambda result: np.array(ours, float))
    rows = pd.DataFrame([cell])
    cell = rows.loc[0]
    cell["verdict"], _ = verdicts.judge(rows, cell)
    assert verdicts.seeds_to_decide(rows, cell) == seeds
    if seeds.isdigit():
        found = [verdicts.judge(rows, cell, n)[0] for n in (int(seeds) - 1, int(seeds))]
        assert found[0] == "undecided" != found[1]


def test_readings_of_table_5(rows):
    counts = verdicts.readings()
    assert [*counts] == list(verdicts.WORDS[:-1])
    assert (counts.sum(axis=1) == 30).all() and list(counts.index) == list(verdicts.READINGS.values())
    mine = rows["verdict"][(rows["paper"] == "fedsgcnn") & (rows["table"] == "table5")].value_counts()
    assert counts.iloc[0].replace(0, np.nan).dropna().to_dict() == mine.to_dict(), "the first is the one judged"


def test_settings_and_bounds(monkeypatch):
    settings = row(20, metric="clients", method="data")
    assert judged(monkeypatch, {"data": [20]}, settings)[0] == "as in the paper"
    assert judged(monkeypatch, {"data": [21]}, settings) == ("not as in the paper", "r")
    ratios = [([3.0], "undecided"), ([3.0, 3.1], "reproduced"), ([2.0, 3.0], "undecided"), ([1.5], "not reproduced")]
    for ours, word in ratios:
        assert judged(monkeypatch, {"new": ours}, row(2, metric="ratio"))[0] == word


def test_derived_figures():
    run = {
        "rounds": [1, 50, 55, 60],
        "splits": [[50, 1, 1], [55, 1, 1]],
        "clients": [[0.1, 0.1], [0.2, 0.4], [0.3, 0.9], [0.5, 0.7]],
        "accuracy": [0.1, 0.3, 0.6, 0.6],
        "clusters": [[0, 0], [0, 0], [0, 1], [0, 1]],
    }
    photos = {"five layers: all three": {"0": run, "1": run | {"accuracy": [0.1, 0.2, 0.6, 0.8]}}}
    named = {"before the first split": [0.3, 0.2], "gain at the first split": [0.5, 0.5], "at the end": [0.6, 0.8]}
    for name, value in (named | {"end over first split": [2, 4]}).items():
        assert verdicts.DERIVED[name](photos) == pytest.approx(value)
    sweep = {f"weight {w:g}": {"max": {"0": 1 - abs(w - 0.5), "1": w}} for w in (0, 0.25, 0.5, 1, 2)}
    assert verdicts.DERIVED["correlation up to 0.5"](sweep) == pytest.approx([1, 1])
    assert verdicts.DERIVED["correlation from 0.5"](sweep) == pytest.approx([-1, 1])
    assert verdicts.DERIVED["best weight"](sweep) == [0.5, 2]
    right = {5: (0.5, 0.6), 10: (0.7, 0.71), 15: (0.4, 0.4), 20: (0.7, 0.8)}
    pairs = {f"SGCNN, {n} clients": {"accuracy": dict(zip("01", v, strict=True))} for n, v in right.items()}
    table = {"Tables 2 and 3, own 4 rows": pairs | {"majority class": {"accuracy": {"0": 0.5, "1": 0.5}}}}
    assert verdicts.DERIVED["training clients needed"](table) == [10]
    for n in pairs:
        pairs[n]["accuracy"] = {"0": 0.5, "1": 0.5}
    assert verdicts.DERIVED["training clients needed"](table) == [math.inf]

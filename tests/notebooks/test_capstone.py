"""The capstone: its starter runs with each of its data sets, and makes the numbers of the sample report."""

import re

import numpy as np
import pandas as pd
import pytest

import fedlib
from notebooks import colab
from tools import downloads, notebooks

PAGE = (notebooks.ROOT / "book/teaching/capstone.md").read_text(encoding="utf8")


def executed(folder, monkeypatch, **parameters):
    """The starter after a run from a clean kernel in the folder of student.zip; the folder has only the library."""
    monkeypatch.setenv("PYTHONPATH", str(notebooks.ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return colab.executed(notebooks.read(downloads.STARTER), folder, parameters, limit=900)


def shown(notebook, cell):
    """What a cell prints, or the text of its table."""
    (outputs,) = [c.outputs for c in notebook.cells if c.id == cell]
    return "\n".join(o.text if "text" in o else o.data.get("text/plain", "") for o in outputs)


@pytest.mark.parametrize("data", ["cars", "languages", "modules"])
def test_the_starter_runs(tmp_path, monkeypatch, data):
    ran = executed(tmp_path, monkeypatch, preset="smoke", data=data)
    clients, least, most = map(int, re.search(r"(\d+) clients with (\d+) to (\d+) rows", shown(ran, "load")).groups())
    if data == "cars":
        assert (clients, least, most) == (13, 26, 40)
    else:
        assert clients == 24 and least >= 600 if data == "languages" else clients > 50 and least >= 50
        assert most <= 1000
    assert "owners shuffled" in shown(ran, "table")


def test_the_sample_report_is_what_the_starter_makes(tmp_path, monkeypatch):
    ran = executed(tmp_path, monkeypatch)
    table = shown(ran, "table")
    lines = re.findall(r"^> \| (\w.+?) \| (.+) \|$", PAGE, re.M)
    assert [name for name, _ in lines] == ["as they are", "owners shuffled", "year as a column"]
    for name, cells in lines:
        said = [float(n) for n in re.findall(r"-?\d\.\d\d", cells)]
        ours = [float(n) for n in re.findall(r"-?\d\.\d\d", " ".join(re.findall(rf"^{name} +(.+)$", table, re.M)))]
        assert np.allclose(said, ours, atol=0.02), (name, said, ours)
    assert re.findall(r"^[a-z ]+? {3,}(\w+(?: \w+)*) *$", table.split("verdict")[1], re.M) == [
        "holds", "the opposite holds", "holds"
    ]  # fmt: skip


def test_what_the_report_counts():
    for columns in (8, 9):
        numbers = sum(p.numel() for p in fedlib.models.MLP((columns, 16, 1)).init(0).values())
        assert f" {numbers}" in PAGE


def test_own_tables_are_read(tmp_path):
    (cell,) = [c.source for c in notebooks.read(downloads.STARTER).cells if c.id == "folder"]
    for name, rows in (("east", 3), ("west", 2)):
        frame = pd.DataFrame({"age": np.arange(rows), "dose": 2.0, "pain": rows})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    scope = {"np": np, "pd": pd, "Path": type(tmp_path)}
    exec(cell, scope)
    x, y, owner = scope["folder"](tmp_path, "pain")
    assert x.shape == (5, 2) and y.tolist() == [3, 3, 3, 2, 2] and owner.tolist() == ["east"] * 3 + ["west"] * 2

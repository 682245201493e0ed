"""The papers' own settings: the notebook beside the chapters, with tiny sizes, here and on a machine like Colab's."""

import nbformat
from notebooks.test_notebooks import COLAB, OTHER_ROUNDING, run

from notebooks import colab
from tools import badges, downloads, notebooks


def trial(folder, monkeypatch, *folders, **environment):
    """Run it in a folder; gives what its cells show."""
    monkeypatch.setenv("FEDLIB_DATA", str(folder))
    ran = run(notebooks.read(downloads.PAPERS), folder / "here.ipynb", monkeypatch, 0, *folders, **environment)
    return {c.id: "".join(o.get("text", str(o.get("data"))) for o in c.get("outputs", ())) for c in ran.cells}


def test_it_runs_and_goes_on_from_what_is_kept(tmp_path, monkeypatch):
    shown = trial(tmp_path, monkeypatch)
    assert "in the paper close to 0.60" in shown["cfl-figure"]
    assert all(printed in shown["fedcg-table"] for printed in ("77.81", "83.41", "2.10"))
    assert all(f"({printed})" in shown["fedsgcnn-table"] for printed in ("0.097", "0.076", "0.113", "0.126", "0.131"))
    again = trial(tmp_path, monkeypatch)
    assert all("1 parts are there already" in again[cell] for cell in ("cfl", "fedcg", "fedsgcnn"))
    assert all(again[cell] == shown[cell] for cell in ("fedcg-table", "fedsgcnn-table"))


def test_it_runs_on_another_machine(tmp_path, monkeypatch):
    """As the chapters: Colab's packages, a device that refuses what a GPU refuses, another rounding."""
    installed = colab.installed_by(badges.setup_cell(downloads.PAPERS.stem, "https://github.com/a/b", "1"))
    hidden = ",".join(colab.missing(installed))
    shown = trial(tmp_path, monkeypatch, COLAB, HIDDEN_PACKAGES=hidden, **OTHER_ROUNDING)
    assert "FedSGCNN" in shown["fedsgcnn-table"]


def test_its_set_up_is_that_of_the_chapters():
    text = downloads.PAPERS.read_text(encoding="utf8")
    assert badges.notebook_with(text, downloads.PAPERS.stem, badges.repository(), badges.release()) == text
    nbformat.validate(notebooks.read(downloads.PAPERS))

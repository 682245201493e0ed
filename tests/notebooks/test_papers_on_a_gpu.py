"""The papers' own settings: the notebook beside the chapters, with tiny sizes, here and on a machine like Colab's."""

from notebooks import colab
from tools import downloads, notebooks


def shown_by(run, folder, monkeypatch, *how):
    """Run it in a folder; gives what its cells show."""
    monkeypatch.setenv("FEDLIB_DATA", str(folder))
    ran = run(notebooks.read(downloads.PAPERS), *how, folder, monkeypatch)
    return {c.id: "".join(o.get("text", str(o.get("data"))) for o in c.get("outputs", ())) for c in ran.cells}


def test_it_runs_and_goes_on_from_what_is_kept(tmp_path, monkeypatch):
    shown = shown_by(colab.run, tmp_path, monkeypatch)
    assert "in the paper close to 0.60" in shown["cfl-figure"]
    assert all(printed in shown["fedcg-table"] for printed in ("77.81", "83.41", "2.10"))
    assert all(f"({printed})" in shown["fedsgcnn-table"] for printed in ("0.097", "0.076", "0.113", "0.126", "0.131"))
    again = shown_by(colab.run, tmp_path, monkeypatch)
    assert all("1 parts are there already" in again[cell] for cell in ("cfl", "fedcg", "fedsgcnn"))
    assert all(again[cell] == shown[cell] for cell in ("fedcg-table", "fedsgcnn-table"))


def test_it_runs_on_another_machine(tmp_path, monkeypatch):
    shown = shown_by(colab.run_there, tmp_path, monkeypatch, downloads.PAPERS.stem)
    assert "FedSGCNN" in shown["fedsgcnn-table"]

"""Run chapters at full size where stored results are missing or stale: ``make results``, and ``make paper``.

A chapter with preset ``full`` or ``paper`` writes its files in book/results/ itself, with their provenance. Its
executed copy goes to _build/full/ or _build/paper/. With ``paper`` the long runs keep checkpoints: typed again after a
loss, the command goes on from them. It downloads data that may be downloaded; where others are missing, it says so and
goes on with the next chapter.
"""

import argparse
import sys
import warnings

import papermill

from fedlib import results

from . import notebooks
from .notebooks import ROOT

#: What preset "paper" stores; the other chapters have nothing beyond "full".
PAPER = {
    "01_fedavg": "01_fedavg_paper",
    "02_heterogeneity": "02_heterogeneity_paper",
    "04_cfl": "04_cfl_cifar10",
    "06_fedcg_graph": "06_fedcg_graph_paper",
    "08_fedsgcnn": "08_fedsgcnn_paper",
}


def state(chapter: str, result: str = "") -> str:
    """Whether a stored result of a chapter, by default that of ``full``, is "missing", "stale" or "current"."""
    path = ROOT / "book/results" / f"{result or chapter}.json"
    if not path.exists():
        return "missing"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "stale" if results.load(path, ROOT / "notebooks" / f"{chapter}.ipynb")["stale"] else "current"


def run(chapter: str, result: str, preset: str) -> str:
    """Run a chapter if its result is not current; what went wrong, or nothing."""
    found = state(chapter, result)
    print(f"{result}: {found}", flush=True)
    if found == "current":
        return ""
    path = ROOT / "notebooks" / f"{chapter}.ipynb"
    target = ROOT / f"_build/{preset}" / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            path, target, {"preset": preset}, cwd=path.parent, kernel_name="python3", log_output=False
        )
    except papermill.PapermillExecutionError as error:
        return f"{chapter} failed; its copy with the error is {target}\n{error.evalue}"
    if state(chapter, result) != "current":
        return f"{chapter} ran with preset {preset} and wrote no book/results/{result}.json; {target} says why"
    return ""


def main() -> None:
    """Run what is needed, with a progress bar over cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("full", "paper"), default="full")
    preset = parser.parse_args().preset
    chapters = {path.stem: path.stem for path in notebooks.paths()} if preset == "full" else PAPER
    failures = [run(chapter, result, preset) for chapter, result in chapters.items()]
    sys.exit("\n\n".join(filter(None, failures)) or None)


if __name__ == "__main__":
    main()

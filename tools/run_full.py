"""Run the chapters at full size where their stored results are missing or stale: ``make results``.

A chapter with preset ``full`` writes book/results/NN_slug.json itself, with its provenance. Its executed copy, and the
log of what it did, go to _build/full/.
"""

import sys
import warnings

import papermill

from fedlib import results

from . import notebooks
from .notebooks import ROOT


def state(name: str) -> str:
    """Whether the stored result of a chapter is "missing", "stale" or "current"."""
    path = ROOT / "book/results" / f"{name}.json"
    if not path.exists():
        return "missing"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "stale" if results.load(path, ROOT / "notebooks" / f"{name}.ipynb")["stale"] else "current"


def main() -> None:
    """Run what is needed, with a progress bar over cells."""
    for path in notebooks.paths():
        found = state(path.stem)
        print(f"{path.stem}: {found}", flush=True)
        if found == "current":
            continue
        target = ROOT / "_build/full" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            papermill.execute_notebook(
                path, target, {"preset": "full"}, cwd=path.parent, kernel_name="python3", log_output=False
            )
        except papermill.PapermillExecutionError as error:
            sys.exit(f"{path.stem} failed; its copy with the error is {target}\n{error.evalue}")
        if state(path.stem) != "current":
            sys.exit(f"{path.stem} ran with preset full and wrote no book/results/{path.stem}.json")


if __name__ == "__main__":
    main()

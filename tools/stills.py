"""Draw the figures that have no data of their own, as they stand before their script runs: ``python -m tools.stills``.

Their scripts draw them, in Chromium; a test asks whether what lies in ``book/figures`` is what they draw now.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from interactive_figures import FIGURES, chromium, compute

if __name__ == "__main__":
    with chromium() as browser:
        for kind in ("playground", "steps"):
            (FIGURES / f"{kind}.html").write_text(compute(browser, kind, "still()"), encoding="utf8")

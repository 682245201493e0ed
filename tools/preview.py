"""Look at the pages before every chapter has been run: ``make pages``.

A cell that has been run as it stands shows its output; in place of any other output stands a grey "not run here". A
second preview reads only what has changed.
"""

import os
import subprocess
import sys
from pathlib import Path

from . import notebooks

OUT = notebooks.ROOT / "_build/preview"


def main() -> None:
    """Build the preview, and say where it is."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", notebooks.ROOT, "--path-output", OUT, "--quiet"]
    if code := subprocess.call(command, env=os.environ | {"FEDLIB_PREVIEW": "1"}, cwd=notebooks.ROOT):
        sys.exit(code)
    print(f"The preview is ready: open file://{OUT}/_build/html/book/index.html")


if __name__ == "__main__":
    main()

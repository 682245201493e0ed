"""What the first `make` installs: without an NVIDIA card PyTorch for CPUs where it can be had, and Make says which."""

import os
import shutil
import subprocess

import pytest

from tools.notebooks import ROOT

# Notes what it is asked for. PyTorch may be missing; its index for CPUs may not answer, or give a pair that is none.
PYTHON = """#!/bin/sh
case "$*" in
  *torchvision.ops*) if [ -e "$ASKED" ]; then exit "$BROKEN"; else exit "$MISSING"; fi ;;
  *pip*install*) echo "$*" >> "$ASKED" ;;
esac
case "$*" in *--index-url*) exit "$SILENT" ;; esac
"""


CASES = [
    (1, 1, 0, 0, ["cpu", "rest"], "There is no NVIDIA card: asking https://download.pytorch.org/whl/cpu"),
    (1, 1, 1, 0, ["cpu", "out", "rest"], "There was no answer, or no pair that works: PyTorch comes"),
    (1, 1, 0, 1, ["cpu", "out", "rest"], "There was no answer, or no pair that works: PyTorch comes"),
    (0, 1, 0, 0, ["rest"], "Installing"),
    (1, 0, 0, 0, ["rest"], "Installing"),
]


@pytest.mark.parametrize(("card", "missing", "silent", "broken", "asked", "said"), CASES)
def test_what_is_asked_for(tmp_path, card, missing, silent, broken, asked, said):
    for name in ("Makefile", "requirements.txt", "pyproject.toml", "tests/requirements.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {"env/bin/python": PYTHON, "bin/nvidia-smi": f"#!/bin/sh\nexit {card}\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf8")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}", "ASKED": str(tmp_path / "asked")}
    environment |= {"MISSING": str(missing), "SILENT": str(silent), "BROKEN": str(broken)}
    command = ["make", "VENV=env", "env/.fedlib-ready"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = (tmp_path / "asked").read_text(encoding="utf8").splitlines()
    kinds = {"whl/cpu torch torchvision": "cpu", "uninstall": "out", "--editable": "rest"}
    assert [next(kind for sign, kind in kinds.items() if sign in line) for line in lines] == asked
    assert lines[-1].endswith("--editable .[book,test]") and said in run.stdout
    assert ("no answer" in run.stdout) == bool(silent or broken)

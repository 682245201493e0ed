"""What users import from fedlib.algorithms and fedlib.extensions is there, for Python and for type checkers."""

import subprocess
import sys
from importlib import import_module
from inspect import isabstract
from pathlib import Path

import pytest

from fedlib import Algorithm, algorithms, extensions

ROOT = Path(__file__).resolve().parents[1]
USER = """from fedlib import losses
from fedlib.algorithms import FedAvg
algorithm = FedAvg(lambda params, batch: losses.cross_entropy(batch[0] @ params["w"], batch[1], batch[2]), lr=0.1)
"""


@pytest.mark.parametrize("folder", [algorithms, extensions])
def test_no_algorithm_of_the_folder_is_missing(folder):
    names = []
    for file in sorted(Path(folder.__file__).parent.glob("[a-z]*.py")):
        module = import_module(f"{folder.__name__}.{file.stem}")
        things = {name: getattr(module, name) for name in module.__all__}
        types = {name: thing for name, thing in things.items() if isinstance(thing, type) and not isabstract(thing)}
        kinds = [name for name, thing in types.items() if issubclass(thing, Algorithm)]
        assert all(getattr(folder, name, None) is things[name] for name in kinds), f"import {kinds} in __init__.py"
        names += kinds
    assert folder.__all__ == names, f"__all__ of {folder.__name__} lists them in the order of the files"


def test_a_users_program_passes_mypy(tmp_path):
    """With --strict, which takes nothing as exported that a package does not list."""
    file = tmp_path / "user.py"
    file.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--config-file=", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "checked 1 source file" in said or "no issues found" in said, said
    assert not [line for line in said.splitlines() if line.startswith(str(file))], said

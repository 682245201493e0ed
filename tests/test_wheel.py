"""The wheel holds the library and nothing else, and runs where there is no checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import fedlib

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command, cwd, home):
    """What a command prints. It knows of no checkout, no index of packages and no settings of the user."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
    environment = kept | {"HOME": str(home), "PIP_CONFIG_FILE": os.devnull, "OMP_NUM_THREADS": "1"}
    settings = {"cwd": cwd, "env": environment, "capture_output": True, "text": True}
    result = subprocess.run(list(map(str, command)), **settings, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: setuptools leaves files beside the sources, and packs what an older build left there."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT, home=folder)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / "source" / name)
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, folder / "source")
    run(*PIP, *build, cwd=folder, home=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel):
    """The Python of a new environment: the wheel, and below it the packages that are installed here."""
    folder = wheel.parent / "clean"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent, home=wheel.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    run(*PIP, "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=wheel.parent, home=wheel.parent)
    # Python reads no .pth files in a folder added in this way, so a fedlib installed as editable stays out of sight.
    installed = [path for path in sys.path if path.endswith("-packages")]
    (site / "installed.pth").write_text("\n".join(installed), encoding="utf8")
    return folder / "bin/python"


def test_holds_the_library_and_its_licence(wheel):
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "fedlib").rglob("*.py")}
    with zipfile.ZipFile(wheel) as bundle:
        names = {name for name in bundle.namelist() if not name.endswith("/")}
        about = f"fedlib_book-{fedlib.__version__}.dist-info"
        others = {f"fedlib/{name}" for name in ("py.typed", "datasets/femnist300.txt", "datasets/sets.json")}
        assert {name for name in names if not name.startswith(about)} == modules | others
        assert bundle.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = message_from_bytes(bundle.read(f"{about}/METADATA"))
    assert metadata["Version"] == fedlib.__version__
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert {"book", "test", "flower"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf8")


def test_needs_only_what_it_declares(python, tmp_path):
    """All modules can be imported without the packages of the book and of the tests."""
    extras = ["IPython", "matplotlib", "mlxtend", "PIL", "pyarrow", "sklearn", "torch_geometric", "torchvision", "yaml"]
    script = f"""import pkgutil, sys
sys.modules.update(dict.fromkeys({extras}))
import fedlib
for module in pkgutil.walk_packages(fedlib.__path__, "fedlib."):
    if module.name not in ("fedlib.engines.flower", "fedlib.plotting"):
        __import__(module.name)
print(fedlib.__file__)"""
    assert str(python.parents[1]) in run(python, "-c", script, cwd=tmp_path, home=tmp_path)


def test_readme_example_runs(python, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf8"), re.S)
    (tmp_path / "example.py").write_text(f"{code}\nprint(fedlib.__file__)\n", encoding="utf8")
    printed = run(python, "example.py", cwd=tmp_path, home=tmp_path)
    assert "test_accuracy" in printed and str(python.parents[1]) in printed

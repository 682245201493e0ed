"""Install each framework into an environment of its own, _build/peers/NAME.

    python -m benchmarks.peers

The environments see the project's packages behind their own, so all that use PyTorch use the same. A framework that
asks for a newer Python than the project's takes the first such Python on the PATH, and, since compiled packages serve
one Python only, the same version of PyTorch once more (about 5 GB). What cannot be installed is said here and in the
table, with the reason, and does not stop the others.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from ..driver import ENVIRONMENTS, PEERS

NEWER = {"blazefl": ((3, 12), ("python3.14", "python3.13", "python3.12"))}  #: The least Python, and those to look for.


def interpreter(name: str) -> tuple[str, str] | None:
    """The Python that a framework gets, and what that says of its version; None if there is no such Python."""
    least, others = NEWER.get(name, ((3,), ()))
    for python in filter(None, map(shutil.which, [sys.executable] if sys.version_info >= least else others)):
        done = subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
        if done.returncode == 0:  # pyenv puts commands on the PATH for versions that are not switched on
            return python, done.stdout.strip()
    return None


def install(name: str) -> str | None:
    """Make an environment anew where its requirements or Python have changed; why it failed, if it did."""
    folder, found = ENVIRONMENTS / name, interpreter(name)
    requirements = Path(__file__).with_name(f"{name}.txt")
    ready, failed = folder / "ready", folder / "failed"
    if found is None:
        if ready.exists():
            return None
        folder.mkdir(parents=True, exist_ok=True)
        failed.write_text(f"cannot be installed: none of {', '.join(NEWER[name][1])} is on the PATH")
        return failed.read_text()
    python, says = found
    own = says == sys.version
    stamp = hashlib.sha256(requirements.read_bytes() + says.encode()).hexdigest()
    if ready.exists() and ready.read_text() == stamp:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", *(["--without-pip"] if own else []), folder], check=True)
    command = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--requirement", requirements]
    if own:  # the project's packages, pip among them, come after the environment's own
        inside = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
        Path(inside, "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        command += [f"torch=={version('torch').partition('+')[0]}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        ready.write_text(stamp)
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
    failed.write_text(f"cannot be installed: {errors[-1].removeprefix('ERROR: ')}")
    return failed.read_text()


def main() -> None:
    for label, name in PEERS.items():
        print(f"{label}: ", end="", flush=True)
        print(install(name) or "installed")


if __name__ == "__main__":
    main()

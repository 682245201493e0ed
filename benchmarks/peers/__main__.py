"""Install each framework into an environment of its own, _build/peers/NAME.

    python -m benchmarks.peers

The environments see the project's packages behind their own, so all that use PyTorch use the same. What cannot be
installed is said here and in the table, with pip's reason, and does not stop the others.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from ..driver import ABSENT, ENVIRONMENTS, PEERS


def install(name: str) -> str | None:
    """Make an environment anew where its requirements or Python have changed; why it failed, if it did."""
    folder = ENVIRONMENTS / name
    requirements = Path(__file__).with_name(f"{name}.txt")
    stamp = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    ready, failed = folder / "ready", folder / "failed"
    if ready.exists() and ready.read_text() == stamp:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder)
    python = folder / "bin/python"
    # The project's packages, pip among them, come after the environment's own.
    inside = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    Path(inside, "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements]
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
    for label, reason in ABSENT.items():
        print(f"{label}: {reason}")


if __name__ == "__main__":
    main()

"""Run the experiments whose stored results are missing or stale: ``make results``, and ``make paper``."""

import argparse
import sys

from . import running


def main() -> None:
    """Chapter after chapter; one that fails, for want of its data say, does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=("full", "paper"), default="full")
    paper = parser.parse_args().preset == "paper"
    failures = []
    for name, module in running.modules().items():
        for preset, experiment in module.PRESETS.items():
            if (preset == "paper") != paper:
                continue
            found = running.state(experiment)
            print(f"{name} --preset {preset} ({experiment.result}): {found}{running.took(experiment)}", flush=True)
            if found == "current":
                continue
            try:
                running.run(experiment)
            except (FileNotFoundError, ImportError, OSError) as error:
                failures.append(f"{name} --preset {preset}: {error}")
    sys.exit("\n\n".join(failures) or None)


if __name__ == "__main__":
    main()

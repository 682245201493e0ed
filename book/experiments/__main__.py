"""Run an experiment, or all whose stored results are missing or stale; either goes on where it stopped."""

import argparse
import sys

from . import running


def main() -> None:
    """One after another; an experiment that fails, for want of its data say, does not stop the next."""
    parser = argparse.ArgumentParser("python -m book.experiments", description=__doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", choices=running.names(), help="%(choices)s; by default all")
    parser.add_argument("--preset", help="by default the first of NAME; without a name, paper or all others (full)")
    parser.add_argument("--again", action="store_true", help="measure anew although the stored result is current")
    given = parser.parse_args()
    modules, failures = running.modules(given.name), []
    there = modules[given.name].PRESETS if given.name else ("full", "paper")
    wanted = given.preset or next(iter(there))
    if wanted not in there:
        parser.error(f"there is no preset {wanted!r}; there are {', '.join(there)}")
    for name, module in modules.items():
        for preset, experiment in module.PRESETS.items():
            if preset != wanted and (given.name or "paper" in (preset, wanted)):
                continue
            found = running.state(experiment)
            print(f"{name} --preset {preset} ({experiment.result}): {found}{running.took(experiment)}", flush=True)
            if found == "current" and not given.again:
                continue
            try:
                running.run(experiment, given.again)
            except (FileNotFoundError, ImportError, OSError) as error:
                failures.append(f"{name} --preset {preset}: {error}")
    sys.exit("\n\n".join(failures) or None)


if __name__ == "__main__":
    main()

"""The examples in the docstrings run, and the twenty names of the reference have one each."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = re.findall(r"^\{py:obj\}`\w+ <fedlib\.([\w.]+)>`", (ROOT / "book/api.md").read_text(encoding="utf8"), re.M)


def examples(name):
    """The examples of a public name of fedlib."""
    module, _, last = name.rpartition(".")
    thing = getattr(import_module(f"fedlib.{module}"), last)
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(thing, name, globs={})
    return found


def run(test, names):
    """Run examples with these names defined; what they print is the failure's message."""
    test.globs.update(names)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.failures == 0, "".join(said)
    return test.globs


@pytest.fixture(scope="module")
def federation():
    """What the example of `fit` defines, which others refer to."""
    return run(examples("federation.fit"), {})


def test_there_are_twenty():
    assert len(set(NAMES)) == len(NAMES) == 20


@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name, federation):
    test = examples(name)
    assert test.examples, "without an example"
    assert all(doctest.SKIP not in e.options for e in test.examples)
    run(test, federation if "example of `fedlib.federation.fit`" in test.docstring else {})

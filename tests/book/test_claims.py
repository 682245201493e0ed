"""What the pages say of stored results is so: a claim that no longer holds fails here, and the page still opens.

Each file in ``tests/book/claims/`` has ``PAGE`` (a notebook or page), ``CLAIMS`` (phrases of the page, each with a
function that must be true of the stored figures) and perhaps ``GIVEN``, phrases whose numbers are no results: settings,
definitions, the papers' own figures, arithmetic.
"""

import functools
import importlib.util
import random
import re

import pytest

from book import claiming
from tools import notebooks

PATHS = sorted((notebooks.ROOT / "tests/book/claims").glob("*.py"))


def module(path):
    spec = importlib.util.spec_from_file_location(f"claims_{path.stem}", path)
    found = importlib.util.module_from_spec(spec)
    found.GIVEN = ()
    spec.loader.exec_module(found)
    return found


FILES = {path.stem: module(path) for path in PATHS}
CLAIMS = [
    pytest.param(stem, phrase, holds, id=f"{stem}: {phrase[:60]}")
    for stem, file in FILES.items()
    for phrase, holds in file.CLAIMS.items()
]


def test_every_chapter_and_the_page_of_verdicts_has_claims():
    assert set(FILES) >= {p.stem for p in notebooks.paths()} | {"what_held"}


@pytest.mark.parametrize(("stem", "phrase", "holds"), CLAIMS)
def test_the_phrase_stands_there_and_holds(stem, phrase, holds):
    assert " ".join(phrase.split()) in claiming.prose(FILES[stem].PAGE), "the page does not say so any more"
    assert holds(claiming.stored), "the stored figures do not say so any more"


@pytest.mark.parametrize("stem", FILES)
def test_given_phrases_stand_there(stem):
    text = claiming.prose(FILES[stem].PAGE)
    assert [g for g in FILES[stem].GIVEN if " ".join(g.split()) not in text] == []


@pytest.mark.parametrize("stem", FILES)
def test_every_number_of_the_prose_is_claimed_or_given(stem):
    """Exercises set numbers of their own."""
    file = FILES[stem]
    text = claiming.prose(file.PAGE).split("## Exercises")[0]
    covered = sorted({" ".join(p.split()) for p in [*file.CLAIMS, *file.GIVEN]}, key=len, reverse=True)
    for phrase in covered:
        text = text.replace(phrase, " # ")
    assert claiming.numbers(text) == []


def changed(figures, how, seed):
    """A copy of figures with every number changed: to zero, to its negative, doubled, or drawn anew."""
    draw = random.Random(seed)
    rules = {"zero": lambda v: 0.0, "negative": lambda v: -v, "large": lambda v: 3 * v + 1}
    rules["drawn"] = lambda v: draw.uniform(-2, 2)

    def walk(node):
        if isinstance(node, dict):
            return {k: walk(v) for k, v in node.items()}
        if isinstance(node, list):
            return [walk(v) for v in node]
        return rules[how](node) if isinstance(node, (int, float)) and not isinstance(node, bool) else node

    return walk(figures)


def breaks(phrase, holds):
    """Whether other figures break a claim."""
    for how in ("zero", "negative", "large", *["drawn"] * 5):
        try:
            if not holds(functools.cache(lambda name, how=how: changed(claiming.stored(name), how, f"{phrase}{how}"))):
                return True
        except (ValueError, ArithmeticError, KeyError, IndexError, AssertionError):
            return True
    return False


@pytest.mark.parametrize("stem", FILES)
def test_other_figures_break_each_claim(stem):
    """A claim that holds of any figures tests nothing."""
    assert [phrase for phrase, holds in FILES[stem].CLAIMS.items() if not breaks(phrase, holds)] == []


def test_numbers_in_prose_are_seen():
    assert len(claiming.numbers("It rose by 0.12 and .5, to 71 % or by 3 points, in FedCG 4.1 of 5 seeds")) == 5
    assert claiming.numbers("chapter 6, Table 2, $0.5$ and `lr=0.1`, 12 clients, with 95 % intervals") == []
    assert re.match(r".*− ?0\.3", claiming.numbers("a fall of − 0.3 then")[0].replace("−0", "− 0"))

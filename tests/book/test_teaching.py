"""The teaching pages: complete, and right about numbers."""

import json
import re
from itertools import combinations

import numpy as np
import pytest

from tools import exercises, notebooks, slides, teaching

PATHS = notebooks.paths()
NUMBERS = [int(p.stem[:2]) for p in PATHS]  # of the chapters


def text(page):
    return (notebooks.ROOT / f"book/teaching/{page}.md").read_text(encoding="utf8")


def of_chapters(page):
    """The part of a page for each chapter, by its number."""
    return {int(n): part for n, part in re.findall(r"^## Chapter (\d+):(.+?)(?=^## |\Z)", text(page), re.M | re.S)}


def asked():
    """Each exercise of the book, by its number such as 3.2."""
    return {teaching.number(p, e): e for p in PATHS for e in exercises.of(notebooks.read(p))}


def set_in(row):
    """Numbers of the exercises that a row of a syllabus sets."""
    numbers, given = set(), r"\d+\.\d( to \d+\.\d)?"
    (cell,) = [c for c in row.strip(" |").split(" | ") if re.fullmatch(f"{given}(, {given})*", c)]
    for first, last in re.findall(r"(\d+\.\d)(?: to (\d+\.\d))?", cell):
        chapter, a = first.split(".")
        numbers |= {f"{chapter}.{i}" for i in range(int(a), int((last or first)[-1]) + 1)}
    return numbers


def hours(row):
    """Work at home in a week of a syllabus: chapters to read, exercises to solve, the project."""
    of, project = asked(), re.search(r"\((\d) h\) \|$", row)
    read = sum(teaching.minutes_to_read(notebooks.read(p)) for p in PATHS if p.stem in row)
    return read / 60 + sum(of[n].points for n in set_in(row)) / 4 + (int(project[1]) if project else 0)


def test_every_exercise_has_an_outcome_and_a_grading_note():
    for number in asked():
        assert text("outcomes").count(f"({number}).") == 1, f"outcomes.md must say once what exercise {number} shows"
        assert text("grading").count(f"- **{number}** ") == 1, f"grading.md has no note on exercise {number}"
    named = re.findall(r"\((\d+\.\d)\)", text("outcomes")) + re.findall(r"- \*\*(\d+\.\d)", text("grading"))
    assert set(named) == set(asked()), "no page names an exercise that is not there"


def test_every_chapter_has_its_table():
    assert re.findall(r"\{exercise-table\} (\w+)", text("grading")) == [p.stem for p in PATHS]


def test_every_chapter_can_be_downloaded():
    decks = re.findall(r"/slides/(\w+)\.html\">chapter (\d+)<", text("index"))
    assert decks == [(p.stem, str(n)) for p, n in zip(PATHS, NUMBERS, strict=True)]
    assert re.findall(r"/downloads/(\w+)\.pdf\"", text("index")) == [*(p.stem for p in PATHS), "book"]


def test_numbers_in_the_text():
    outcomes = text("outcomes")
    assert f"{teaching.WORDS} words of text and {teaching.LINES} lines of code" in outcomes
    points = dict(re.findall(r"^\| (\w+) \| .+ \| (\d) \|$", outcomes, re.M))
    assert points == {level: str(n) for level, n in exercises.POINTS.items()}


@pytest.mark.parametrize("page", ["six_weeks", "twelve_weeks"])
def test_syllabi(page):
    rows = [row for row in text(page).splitlines() if re.match(r"\| \d+ \| .*notebooks/", row)]  # without the head
    assert len(rows) == {"six_weeks": 6, "twelve_weeks": 12}[page]
    given = [n for row in rows for n in set_in(row)]
    points = [int(re.search(r" \| (\d+) \| ", row)[1]) for row in rows]
    assert points == [sum(asked()[n].points for n in set_in(row)) for row in rows]
    assert len(set(given)) == len(given) and set(given) <= set(asked())
    assert "up to four hours" in text(page) and 3 < max(map(hours, rows)) <= 4
    read = set()
    for row in rows:
        read |= {p.stem for p in PATHS if p.stem in row}
        ahead = {n.split(".")[0] for n in set_in(row)} - {str(int(stem[:2])) for stem in read}
        assert not ahead, f"exercises of chapters {ahead} are set before they are read"
    if page == "twelve_weeks":
        assert read == {p.stem for p in PATHS}


def test_minutes_table(tmp_path):
    run = {"metadata": {"papermill": {"duration": 90}}, "cells": [], "nbformat": 4, "nbformat_minor": 5}
    for path in PATHS:
        (tmp_path / path.name).write_text(json.dumps(run), encoding="utf8")
    head, rule, *rows = teaching.minutes_table(tmp_path)
    assert head.count("|") == rule.count("|") and len(rows) == len(PATHS)
    for path, row in zip(PATHS, rows, strict=True):
        assert f"{{doc}}`/notebooks/{path.stem}`" in row and " 1.5 min " in row
        minutes = int(re.search(r"\| (\d+) min", row)[1])
        assert minutes % 5 == 0 and 20 <= minutes <= 180
    with pytest.raises(FileNotFoundError, match="make book"):
        teaching.minutes_table(tmp_path / "nothing")


def test_classes_have_ninety_minutes_and_name_what_there_is():
    page, asked_of = text("hours"), questions()
    assert f"the {teaching.IN_CLASS} minutes of the class" in page and f"one class of {teaching.CLASS} minutes" in page
    classes = of_chapters("hours")
    assert [*classes] == NUMBERS
    for n, plan in classes.items():
        blocks = re.findall(r"^\| (\d+) \| ([a-z ]+) \| (.+) \|$", plan, re.M)
        assert sum(int(minutes) for minutes, *_ in blocks) == teaching.CLASS, n
        assert [name for _, name, _ in blocks] == ["recall", "predict", "look", "by hand", "discuss", "exercises"]
        assert int(blocks[-1][0]) == teaching.IN_CLASS
        opened = int(re.match(r"Open with question (\d+)", blocks[1][2])[1])
        assert opened in asked_of[n], f"chapter {n} opens with a question about another one"
        assert {int(q) for q in re.findall(r"[Qq]uestion (\d+)", plan)} >= set(asked_of[n]), "each has its place"
    named = re.findall(r"\b(\d+\.\d)\b", " ".join(classes.values()))
    assert named and set(named) <= set(asked())


def test_short_course_fits_its_classes_and_decks():
    page = text("six_weeks")
    classes = re.findall(r"^## Class \d(.+?)(?=^## )", page, re.M | re.S)
    assert len(classes) == 6
    for plan in classes:
        blocks = re.findall(r"^\| ([a-z]+) \| (\d+) \| .+ \|$", plan, re.M)
        assert sum(int(minutes) for _, minutes in blocks) == teaching.CLASS, plan
        assert [name for name, _ in blocks[:2]] == ["arrive", "predict"], "no block may answer a vote before it"
    decks = {p.stem[:2]: p.read_text(encoding="utf8").splitlines() for p in slides.DECKS.glob("*.md")}
    named = re.findall(r"\b(\d\d)/(\d+)", page)
    assert named and all(int(n) <= decks[chapter].count("---") + 1 for chapter, n in named)


def test_the_matrix_that_a_class_splits():
    page, pairs = text("six_weeks"), [*combinations(range(1, 7), 2)]
    printed = re.findall(r"-?\d\.\d", " ".join(re.findall(r"^\| \*\*\d\*\* (.+)$", page, re.M)))
    cosines = dict(zip(pairs, map(float, printed), strict=True))
    across = {}
    for side in (one for size in range(1, 6) for one in combinations(range(1, 7), size) if 1 in one):
        across[side] = max(c for (i, j), c in cosines.items() if (i in side) != (j in side))
    best, second = sorted(across, key=across.get)[:2]
    assert f"with a largest cosine of {across[best]} across it; the next best has {across[second]}" in page
    sides = (", ".join(str(i) for i in range(1, 7) if (i in best) == here) for here in (True, False))
    assert f"The best split is {' and '.join(sides)}," in page
    assert "Clients 2 and 4 remain together although their own cosine is -0.2" in page and cosines[2, 4] == -0.2


def questions():
    """Numbers of the questions for each chapter."""
    parts = of_chapters("questions").items()
    return {n: [int(q) for q in re.findall(r"^### Question (\d+):", part, re.M)] for n, part in parts}


def test_questions():
    of = questions()
    assert list(of) == NUMBERS and all(2 <= len(numbers) <= 3 for numbers in of.values())
    everything = [q for numbers in of.values() for q in numbers]
    assert sorted(everything) == list(range(1, len(everything) + 1)), "each number occurs once"
    assert f"| {len(everything)} questions to vote on" in text("index")
    right = []
    for part in text("questions").split("### Question ")[1:]:
        said, answer = part.split("```{dropdown} Answer\n")
        letters = re.findall(r"^- \*\*\((\w)\)\*\*", said, re.M)
        assert "".join(letters) in ("abc", "abcd"), part
        right += re.match(r"\*\*\((\w)\)\*\* is right", answer)[1]
        wrong = re.findall(r"^- \*\*\((\w)\)\*\* \w", answer, re.M)
        assert sorted([*wrong, right[-1]]) == letters, "each wrong answer shows a mistake"
    assert all(4 <= right.count(letter) <= 12 for letter in "abcd"), "no letter is a good guess"


def test_the_examples_of_the_prerequisites():
    page = text("prerequisites")
    x, mu = np.array([0, 1, 5, 6]), np.array([1, 5])
    r = np.exp(-((x[:, None] - mu) ** 2) / 2)
    r /= r.sum(1, keepdims=True)
    mean = r.T @ x / r.sum(0)
    assert f"= {r[1, 0]:.4f}$" in page and f"$\\mu_1 = {mean[0]:.2f}$ and $\\mu_2 = {mean[1]:.2f}$" in page
    x, y = np.array([-1, 1]), np.array([-2, 2])
    within, other, across = (np.exp(-((a[:, None] - b) ** 2)).mean() for a, b in ((x, x), (y, y), (x, y)))
    assert all(f"= {value:.3f}$" in page for value in (within, other, across, within + other - 2 * across))
    chain = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    assert (chain @ [1, 0, 5] / chain.sum(1)).tolist() == [0.5, 2, 2.5]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_the_card_says_how_long_it_takes_to_read(path):
    notebook = notebooks.read(path)
    card = next(c.source for c in notebook.cells if c.id == "title")
    said = re.search(r"\*\*Time\*\* \| about (.+?) to read", card)[1]
    known = {
        "25 minutes": 25,
        "30 minutes": 30,
        "40 minutes": 40,
        "an hour": 60,
        "an hour and a half": 90,
        "two hours": 120,
    }
    assert abs(known[said] - teaching.minutes_to_read(notebook)) <= 15, said

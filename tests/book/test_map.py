"""The map of the book names methods that the library has, and marks places that are on it."""

from book import figures
from book.figures import places
from fedlib import algorithms
from tools import notebooks

NAMES = {  # as the map has them -> classes; others have the names of theirs
    "FedOpt": ["FedAvgM", "FedAdagrad", "FedAdam", "FedYogi"],
    "fine-tuning": ["FineTunedFedAvg"],
    "k-means": ["ClusteredKMeans"],
}


def test_every_name_is_an_algorithm_and_stands_once():
    named = [name for names in places.METHODS.values() for name in names]
    assert len(set(named)) == len(named)
    there = {name.lower() for name in algorithms.__all__}
    for name in named:
        assert {n.lower() for n in NAMES.get(name, [name.replace("-", "")])} <= there, name


def test_each_chapter_has_the_map_with_its_places():
    for path in notebooks.paths():
        number = int(path.stem[:2])
        (cell,) = (c for c in notebooks.read(path).cells if c.id == "map")
        assert cell.source.splitlines()[1] == f"figures.who_shares_what({number})"
        assert figures.who_shares_what(number).html.count('class="here"') == len(places.CHAPTERS.get(number, ()))
    assert all(set(marked) <= set(places.METHODS) for marked in places.CHAPTERS.values())

"""The map of the book: what clients share, and with whom."""

from typing import Any

__all__ = ["CHAPTERS", "METHODS", "WHAT", "WHOM", "drawn"]

WHOM = ("all clients", "all + own", "a group", "neighbours")
WHAT = ("whole model", "some layers", "components", "class means")
METHODS = {  # what, with whom: who does so
    ("whole model", "all clients"): ("FedAvg", "FedProx", "SCAFFOLD", "FedOpt"),
    ("whole model", "all + own"): ("fine-tuning", "Ditto"),
    ("whole model", "a group"): ("CFL", "IFCA", "PACFL", "k-means"),
    ("whole model", "neighbours"): ("pFedGraph",),
    ("some layers", "all + own"): ("FedRep", "LG-FedAvg"),
    ("some layers", "a group"): ("FedSGCNN",),
    ("components", "all + own"): ("FedEM",),
    ("components", "a group"): ("FedCG",),
    ("class means", "all + own"): ("FedProto",),
}
CHAPTERS = {  # the places that a chapter is about; a chapter that is not here is about the whole map
    **dict.fromkeys((1, 2, 3), [("whole model", "all clients")]),
    4: [("whole model", "all + own"), ("some layers", "all + own")],
    **dict.fromkeys((5, 6, 7), [("whole model", "a group")]),
    **dict.fromkeys((8, 9, 10), [("components", "a group")]),
    11: [("some layers", "all + own")],
    12: [("some layers", "a group")],
    13: [("class means", "all + own")],
}
_LINE = 15  # its height


def drawn(chapter: int) -> tuple[dict[str, Any], str]:
    """What the map's template shows, with the places of a chapter marked, and its caption."""
    here, top, rows, said = CHAPTERS.get(chapter, []), 22, [], list[str]()
    for what in WHAT:
        names = {whom: METHODS.get((what, whom), ()) for whom in WHOM}
        height = _LINE * max(2, *map(len, names.values())) + 6
        rows.append((top, height, what, [(some, (what, whom) in here) for whom, some in names.items()]))
        said += [f"{', '.join(some)}: {what}, {whom}" for whom, some in names.items() if some]
        top += height
    label = f"Methods by what clients share and with whom. {'; '.join(said)}."
    words = "What is shared (rows), and with whom (columns); an empty place has no method in this book." + (
        " Marked: this chapter." if here else ""
    )
    return {"whom": WHOM, "line": _LINE, "rows": rows, "bottom": top, "label": label}, words

"""The map of the book: what clients share, and with whom."""

from html import escape

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
    1: [("whole model", "all clients")],
    2: [("whole model", "all clients")],
    3: [("whole model", "all clients")],
    4: [("whole model", "all + own"), ("some layers", "all + own")],
    5: [("whole model", "a group")],
    6: [("whole model", "a group")],
    7: [("whole model", "a group")],
    8: [("components", "a group")],
    9: [("components", "a group")],
    10: [("components", "a group")],
    11: [("some layers", "all + own")],
    12: [("some layers", "a group")],
    13: [("class means", "all + own")],
}
_LEFT, _TOP, _WIDE, _LINE = 80, 22, 72, 15  # of the first cell, and the size of cells and lines


def drawn(chapter: int) -> tuple[str, str]:
    """The map as SVG, with the places of a chapter marked, and its caption."""
    here, top, parts, said = CHAPTERS.get(chapter, []), _TOP, list[str](), list[str]()
    for j, whom in enumerate(WHOM):
        parts.append(f'<text class="mid" x="{_LEFT + (j + 0.5) * _WIDE}" y="13">{whom}</text>')
    for what in WHAT:
        lines = max(len(METHODS.get((what, whom), ())) for whom in WHOM)
        height = max(2, lines) * _LINE + 6
        for n, word in enumerate(what.split()):
            parts.append(f'<text class="end" x="{_LEFT - 6}" y="{top + 15 + n * _LINE}">{word}</text>')
        for j, whom in enumerate(WHOM):
            names, x = METHODS.get((what, whom), ()), _LEFT + j * _WIDE
            mark = ' class="here"' if (what, whom) in here else ""
            parts.append(f'<rect{mark} x="{x + 1}" y="{top + 1}" width="{_WIDE - 2}" height="{height - 2}" rx="4"/>')
            parts += [
                f'<text class="mid" x="{x + _WIDE / 2}" y="{top + 15 + n * _LINE}">{escape(name)}</text>'
                for n, name in enumerate(names)
            ]
            said += [f"{', '.join(names)}: {what}, {whom}"] if names else []
        top += height
    label = escape(f"Methods by what clients share and with whom. {'; '.join(said)}.")
    scene = f'<svg viewBox="0 0 {_LEFT + len(WHOM) * _WIDE + 2} {top + 2}" role="img" aria-label="{label}">'
    words = "What is shared (rows), and with whom (columns); an empty place has no method in this book." + (
        " Marked: this chapter." if here else ""
    )
    return f"{scene}{''.join(parts)}</svg>", words

"""No line begins with the comma or the bracket that follows a formula.

To a browser a formula is a box, before and after which a line may end.
"""

import re

from docutils import nodes

BEFORE = re.compile(r"[(\[“‘]+$")
AFTER = re.compile(r"(?:[)\],.;:?!%”]|’s?)+")


def keep(app, doctree, docname):
    """Put each formula of a sentence and the signs around it into a box in which no line ends."""
    for formula in [*doctree.findall(nodes.math)]:
        parent, place = formula.parent, formula.parent.index(formula)
        around = [parent[at] if 0 <= at < len(parent) else None for at in (place - 1, place + 1)]
        before, after = (each.astext() if isinstance(each, nodes.Text) else "" for each in around)
        opening, closing = BEFORE.search(before), AFTER.match(after)
        if opening or closing:
            first, last = opening[0] if opening else "", closing[0] if closing else ""
            if first:
                parent.replace(around[0], nodes.Text(before[: -len(first)]))
            if last:
                parent.replace(around[1], nodes.Text(after[len(last) :]))
            box = nodes.inline("", "", classes=["together"])
            parent.replace(formula, box)
            box += [nodes.Text(first), formula, nodes.Text(last)]

"""Drawings: a model that two groups pull apart, a layer with modules for domains, and a small network as a graph."""

from collections.abc import Sequence

__all__ = ["as_graph", "modules", "split"]

_NAMES = "0°", "90°", "180°", "270°"
_ARROW = (
    '<defs><marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
)


def _text(x: float, y: float, words: str, where: str = "mid", more: str = "") -> str:
    return f'<text class="{where}" x="{x:g}" y="{y:g}"{more}>{words}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str = "var(--soft)", more: str = "") -> str:
    stroke = 'stroke="currentColor" stroke-opacity=".5"'
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" {stroke}{more}/>'


def _arrow(path: str, name: str) -> str:
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.3" marker-end="url(#{name})"/>'


def split() -> tuple[str, str]:
    """One model that two groups pull apart, the cosines that show it, and two models: SVG, and what it says."""

    def pulls(x: float, y: float, ways: Sequence[int]) -> list[str]:
        """A model and its clients' updates, which point to the right (1) or to the left (-1)."""
        arrows = []
        for i, way in enumerate(ways):
            rise = 17 * (i % 4) - 26
            path = f"M{x + 13 * way} {y + rise / 3:g}L{x + 58 * way} {y + rise}"
            arrows += [f'<g style="color: var(--g{int(way < 0)})">{_arrow(path, "split-tip")}</g>']
        return [f'<circle cx="{x}" cy="{y}" r="11" fill="var(--soft)" stroke="currentColor"/>', *arrows]

    ways = [1] * 4 + [-1] * 4
    titles = (95, "one model"), (320, "cosines of updates"), (535, "two models")
    parts = [_ARROW.format("split-tip"), *(_text(x, 16, words, "mid title") for x, words in titles)]
    parts += [*pulls(95, 85, ways), _text(95, 165, "the pulls cancel,"), _text(95, 181, "and it stands still")]
    for i, row in enumerate(ways):
        for j, column in enumerate(ways):
            place = f'x="{264 + 14 * j}" y="{30 + 14 * i}" width="13" height="13"'
            parts += [f'<rect {place} fill="var({"--plus" if row == column else "--minus"})" fill-opacity=".6"/>']
    parts += ['<path d="M264 85.5H375M319.5 30V141" stroke="currentColor" stroke-width="2"/>']
    parts += [_text(320, 165, "alike in a group, opposed across,"), _text(320, 181, "so split between the blocks")]
    parts += [*pulls(535, 55, ways[:4]), *pulls(535, 115, ways[4:])]
    parts += [_text(535, 165, "each follows its own group"), _text(535, 181, "from a copy of the model")]
    label = (
        "Left: one model with four arrows to the right and four to the left. Middle: an 8 by 8 matrix with two red "
        "blocks on the diagonal and two blue blocks off it, cut between the blocks. Right: two models, one with the "
        "four arrows to the right, the other with the four to the left."
    )
    words = (
        "The idea of CFL. Clients of two groups pull their common model in opposite directions, until it stands still. "
        "The cosines of their updates show who belongs together, and each part goes on with a copy of the model."
    )
    return _scene(640, 190, label, parts), words


def modules() -> tuple[str, str]:
    """A layer with a module for each of four domains, and the graph between the modules: SVG, and what it says."""
    parts = [_ARROW.format("modules-tip")]
    # The network, from left to right: earlier layers, the layer itself with its modules, the output.
    parts += [_text(22, 62, "image"), _arrow("M44 58H66", "modules-tip"), _box(68, 36, 92, 44)]
    parts += [_text(114, 55, "earlier layers"), _text(114, 71, "shared"), _arrow("M160 58H226", "modules-tip")]
    parts += [_text(184, 51, "z"), _box(228, 36, 132, 44)]
    parts += [_text(294, 55, "the layer itself"), _text(294, 71, "f(z; θₐ), shared")]
    plus = '<circle cx="506" cy="58" r="11" fill="var(--soft)" stroke="currentColor"/>'
    parts += [_arrow("M360 58H494", "modules-tip"), plus, _text(506, 63, "+")]
    parts += [_arrow("M517 58H560", "modules-tip"), _text(598, 55, "output"), _text(598, 71, "of the layer")]
    for d, name in enumerate(_NAMES):
        y = 104 + 27 * d
        parts += [f'<path d="M192 58V{y + 10}H226" fill="none" stroke="currentColor" stroke-width="1.3"/>']
        parts += [_box(228, y, 132, 21, f"var(--g{d})", ' fill-opacity=".3"')]
        parts += [_text(294, y + 15, f"module {d}: {name}")]
        parts += [f'<path d="M360 {y + 10}H430" fill="none" stroke="currentColor" stroke-width="1.3"/>']
        parts += [_text(394, y + 6, f"× w{'₀₁₂₃'[d]}")]
    parts += ['<path d="M430 114V195" fill="none" stroke="currentColor" stroke-width="1.3"/>']
    parts += [_arrow("M430 155H506V70", "modules-tip"), _text(470, 149, "× λ")]
    # Where the modules come from: rows of V, mixed by A and W.
    parts += [_arrow("M294 252V217", "modules-tip"), _text(302, 240, "row d of V̂ is module d", "start")]
    parts += [_text(60, 292, "V̂ = σ( A V W )", "mid", ' font-weight="600"')]
    for i in range(4):
        for j in range(4):
            fill = "currentColor" if i == j else "var(--g6)"
            shade = ".75" if i == j else ".25"
            place = f'x="{132 + 17 * j}" y="{256 + 17 * i}" width="16" height="16"'
            parts += [f'<rect {place} fill="{fill}" fill-opacity="{shade}"/>']
        parts += [_box(228, 256 + 17 * i, 132, 16, f"var(--g{i})", ' fill-opacity=".3"')]
    parts += [_box(392, 256, 67, 67, "var(--soft)"), _text(426, 294, "q × q")]
    parts += [_text(166, 342, "A"), _text(294, 342, "V: a row for each domain"), _text(426, 342, "W")]
    label = (
        "Top: an image passes the shared earlier layers and becomes z. The layer itself, also shared, and four "
        "coloured modules, one for each rotation, all take z. Each module's output is multiplied by its weight w, "
        "their sum by lambda, and the result is added to the layer's output. Bottom: the parameters of the modules"
        " are the rows of V, multiplied by A from the left and by W from the right before the modules use them."
    )
    words = (
        "A layer with a module for each domain. Everything grey is shared; each colour belongs to one domain. The "
        "weights w choose the image's domain, and λ sets how much the modules matter. Below, the graph: before "
        "modules are used, A mixes their rows and W their columns."
    )
    return _scene(640, 352, label, parts, top=26), words


def as_graph() -> tuple[str, str]:
    """A network of three neurons and its graph: SVG, and what it says."""
    parts = [_ARROW.format("graph-tip")]
    parts += [_text(110, 16, "the network", "mid title"), _text(330, 16, "its graph", "mid title")]
    parts += [_text(532, 16, "features of the nodes", "mid title")]
    for left, arrow in ((30, True), (250, False)):
        places = {"a": (left, 62), "b": (left, 152), "c": (left + 160, 107)}
        edges = ("a", "+2", "--plus", ""), ("b", "−1", "--minus", ' stroke-dasharray="6 3"')
        for name, weight, colour, dash in edges:
            (x, y), (u, v) = places[name], places["c"]
            way = f"M{x + 16} {y + (5 if y < v else -5)}L{u - 17} {v + (-5 if y < v else 5)}"
            if arrow:
                parts += [_arrow(way, "graph-tip"), _text(left + 84, 70 if name == "a" else 155, weight)]
            else:
                parts += [f'<path d="{way}" stroke="var({colour})" stroke-width="{2 * int(weight[1])}"{dash}/>']
                parts += [_text(left + 84, 70 if name == "a" else 155, weight[1])]
        for name, (x, y) in places.items():
            parts += [f'<circle cx="{x}" cy="{y}" r="15" fill="var(--soft)" stroke="currentColor"/>']
            parts += [_text(x, y + 4, name)]
    parts += [_text(190, 144, "bias 0.5")]
    columns = (450, 494, 534, 572, 612)
    table = [("", "layer", "bias", "in", "out"), ("a", "1 0", "0", "0", "2"), ("b", "1 0", "0", "0", "1")]
    for line, row in enumerate([*table, ("c", "0 1", "0.5", "2.2", "0")]):
        parts += [_text(x, 52 + 30 * line, word) for x, word in zip(columns, row, strict=True)]
    parts += ['<path d="M440 62H632" stroke="var(--line)"/>']
    label = (
        "Left: two inputs, a and b, lead to one neuron c with weights plus 2 and minus 1 and bias 0.5. Middle: the"
        " same as a graph of three nodes; the edge from a to c is solid with length 2, that from b to c is dashed "
        "with length 1. Right: a table of features. a: layer 1 0, bias 0, in 0, out 2. b: layer 1 0, bias 0, in 0,"
        " out 1. c: layer 0 1, bias 0.5, in 2.2, out 0."
    )
    words = (
        "A network of three neurons as a graph. Positive weights (solid) and negative ones (dashed) become two "
        "kinds of edges. A node's features are its layer, its bias, and the lengths of its incoming and outgoing "
        "weights; c has √(2² + 1²) = 2.2 coming in."
    )
    return _scene(640, 180, label, parts), words


def _scene(width: int, height: int, label: str, parts: list[str], top: int = 0) -> str:
    return f'<svg viewBox="0 {top} {width} {height - top}" role="img" aria-label="{label}">{"".join(parts)}</svg>'

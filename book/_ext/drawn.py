"""Sphinx extension: SVG figures become part of their page, drawn in the page's own ink, on light and on dark ground.

What is black, white or grey follows the page: black turns into the colour of its text, white into that of its
background, a grey into the mixture of both. The colours of fedlib's palette are lighter on dark ground (custom.css).
Every other colour is data and stays, and so does the text that stands on it. Where an image of a figure is drawn on
white, as a digit is, or the bar of a matrix's colours, all its images are drawn on the page's ground, with the numbers
on them: in the dark white turns dark, and red stays red.

Two styles of Matplotlib would need each figure drawn twice, and no reader's own colours; a CSS filter over
all figures would turn photos into their negatives.
"""

import base64
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from docutils import nodes
from PIL import Image  # comes with Matplotlib

from fedlib.plotting import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
INK, PAPER = "currentColor", "var(--figure-paper)"
NAMED = {"white": "#ffffff", "black": "#000000"}
GREY_FILL, GREY_LINE = 16, 40  # how far the channels of a grey may lie apart, of 255: pale blue is a fill's own colour
PALETTE = {colour.lower() for colour in COLOURS[:-1]}  # without black
WHITE = 240  # of 255: an image is drawn on white if each channel of its lightest colour comes to this
DROPPED = {f"{SVG}{name}" for name in ("metadata", "style", "title")}
LEGIBLE = 9  # pixels of the smallest text, on a phone too
PAINTED = {f"{SVG}{name}" for name in ("path", "rect", "image")}
NUMBER = r"-?\d*\.?\d+(?:e-?\d+)?"
ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", LINK[1:-5])


def styles_of(element):
    """The declarations of an element's style, and its attributes of colour as declarations."""
    pairs = (part.split(":", 1) for part in element.get("style", "").split(";") if ":" in part)
    given = {name: element.get(name) for name in ("fill", "stroke") if element.get(name)}
    return given | {name.strip(): value.strip() for name, value in pairs}


def restyle(element, style):
    """Write the style of an element."""
    for name in ("fill", "stroke"):
        element.attrib.pop(name, None)
    if style:
        element.set("style", "; ".join(f"{name}: {value}" for name, value in style.items()))


def on_page(colour, span):
    """A colour as the page draws it; a colour that is neither grey nor of the palette as it is."""
    colour = NAMED.get(colour, colour)
    if colour in PALETTE:
        return f"var(--c{colour[1:]}, {colour})"
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour or ""):
        return colour
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    if max(channels) - min(channels) > span:
        return colour
    ink = round(100 - sum(channels) / 7.65)
    if ink in (0, 100):
        return INK if ink else PAPER
    return f"color-mix(in srgb, {INK} {ink}%, {PAPER})"


def is_data(colour, span=GREY_FILL):
    """Whether a colour is none of the page's."""
    return colour in PALETTE or (
        on_page(colour, span) == NAMED.get(colour, colour) and colour not in (None, "none", INK)
    )


def on_white(image):
    """Whether an image is drawn on white, as a digit is, or the bar of a matrix's colours, and a photo is not."""
    data = base64.b64decode(image.get(LINK, "").partition("base64,")[2])
    return bool(data) and min(high for _, high in Image.open(io.BytesIO(data)).convert("RGB").getextrema()) >= WHITE


def moved(element):
    """How far an element is moved to the right and down; nothing where it is not."""
    found = re.search(rf"translate\(({NUMBER})[ ,]+({NUMBER})\)", element.get("transform", ""))
    return [float(n) for n in found.groups()] if found else []


def box(element):
    """Left, top, right and bottom of what a path or an image covers; None where it is placed by a transformation."""
    transform = element.get("transform", "")
    if element.tag == f"{SVG}path":
        numbers = [float(n) for n in re.findall(NUMBER, element.get("d", ""))]
        xs, ys = numbers[::2], numbers[1::2]
        return (min(xs), min(ys), max(xs), max(ys)) if ys and not transform else None
    x, y, width, height = (float(re.match(NUMBER, element.get(k, "0"))[0]) for k in ("x", "y", "width", "height"))
    if "scale(1 -1)" in transform:  # Matplotlib's images stand on their head
        _, down = moved(element) or (0, 0)
        y = -y - height - down
    return x, y, x + width, y + height


def place_of(text):
    """About the middle of a text: of the glyphs that Matplotlib draws, or where a text element begins; or None."""
    place = moved(text)
    if text.tag == f"{SVG}text" and not place:
        place = [float(text.get(at, 0)) for at in "xy"]
    if not place:
        return None
    x, y = place
    scale = re.search(rf"scale\(({NUMBER})", text.get("transform", ""))
    if scale and "rotate" not in text.get("transform"):
        ends = [(moved(use) or [float(use.get("x", 0))])[0] for use in text.iter(f"{SVG}use")]
        x += float(scale[1]) * (max(ends, default=0) + 60) / 2  # of 100 units, of which a glyph has about 60
    return x, y - 3


def is_text(element):
    """Whether an element is a text: one of SVG's own, or the group of glyphs that Matplotlib makes of one."""
    if element.tag == f"{SVG}text":
        return True
    return element.tag == f"{SVG}g" and "scale" in element.get("transform", "") and [*element.iter(f"{SVG}use")] != []


def recolour(element, covered, whole):
    """Give an element and those in it the colours of the page; `covered` collects what has been painted so far."""
    if element.tag in (f"{SVG}defs", f"{SVG}clipPath"):
        return
    style = styles_of(element)
    if is_text(element):
        recolour_text(element, style, covered)
        return
    if element.tag in PAINTED and style.get("fill") != "none":
        area = box(element)
        if area and float(style.get("opacity", 1)) * float(style.get("fill-opacity", 1)) >= 0.5:
            ground = element.get("class") if element.tag == f"{SVG}image" else style.get("fill")
            covered.append((area, element.tag == f"{SVG}image" or is_data(ground), ground))
            if area == whole and on_page(style.get("fill"), GREY_FILL) == PAPER:
                style["fill"] = "none"  # the ground of the figure
    for name, span in (("fill", GREY_FILL), ("stroke", GREY_LINE)):
        if name in style:
            style[name] = on_page(style[name], span)
    restyle(element, style)
    for child in element:
        recolour(child, covered, whole)


def recolour_text(element, style, covered):
    """Give a text the colour of the page, unless it stands on data."""
    place = place_of(element)
    style.setdefault("fill", "#000000")
    under = [on for (x0, y0, x1, y1), *on in covered if place and x0 <= place[0] <= x1 and y0 <= place[1] <= y1]
    data, ground = under[-1] if under else (False, None)
    if ground == "page-ground":
        element.set("class", ground)
    elif ground in PALETTE and style["fill"] == "#ffffff":
        style["fill"] = PAPER
    elif not data:
        style["fill"] = on_page(style["fill"], GREY_LINE)
        element.set("class", "ink")
    restyle(element, style)
    for part in element.iter():
        if part is not element and part.get("style"):  # a path of a formula
            restyle(part, {name: value for name, value in styles_of(part).items() if name != "fill"})


def least_width(root, width):
    """How wide a drawing must be so that its texts can be read, in pixels."""
    sizes = [LEGIBLE]
    for text in filter(is_text, root.iter()):
        glyphs = re.search(rf"scale\(({NUMBER})", text.get("transform", ""))  # of 100 units
        own = re.search(rf"({NUMBER})px", text.get("style", ""))
        sizes += [100 * float(glyphs[1])] if glyphs else [float(own[1])] if own else []
    return round(width * LEGIBLE / min(sizes))


def rounded(coordinates):
    """Coordinates to a tenth of a point; a factor below 1 to three digits."""
    digits = re.compile(r"-?\d+\.\d{2,}")
    return digits.sub(lambda n: f"{float(n[0]):.{1 if abs(float(n[0])) >= 1 else 3}f}", coordinates[0])


def inlined(svg, name, alt, classes=()):
    """An SVG file as an element of a page.

    Parameters
    ----------
    svg : str
    name : str
        Unique on the page: goes before the ids that the figure uses.
    alt : str
    classes : sequence of str
    """
    root = ET.fromstring(svg)
    for parent in [*root.iter()]:
        for child in [c for c in parent if c.tag in DROPPED]:
            parent.remove(child)
    left, top, width, height = (float(n) for n in root.get("viewBox").split())
    for child in root.iterfind(".//{*}defs//*[@style]"):
        restyle(child, {k: on_page(v, GREY_LINE) for k, v in styles_of(child).items()})
    images = [*root.iter(f"{SVG}image")]
    if any(map(on_white, images)):  # all of them, so that a matrix and the bar of its colours stay alike
        for image in images:
            image.set("class", "page-ground")
    covered = []
    for child in root:
        recolour(child, covered, (left, top, left + width, top + height))
    root.attrib |= {
        "style": f"--least: {least_width(root, width)}px",
        "fill": INK,
        "stroke-linejoin": "round",  # Matplotlib's style sheet would hold for the whole page
        "role": "img",
        "aria-label": alt,
        "class": " ".join(["drawn", *classes]),
    }
    head, end, inner = ET.tostring(root, encoding="unicode").partition(">")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', inner))
    inner = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", inner)
    inner = re.sub(r'(href="#|url\(#)', rf"\1{name}-", inner).replace(" xlink:href=", " href=")
    inner = re.sub(r' (?:d|x|y|width|height|transform|points)="[^"]*"', rounded, inner)
    return re.sub(r">\s+<", "><", head.replace(f' xmlns:xlink="{LINK[1:-5]}"', "") + end + inner)


def draw(app, doctree, docname):
    """Put the drawing in place of each image that is an SVG file of the book."""
    if app.builder.format != "html":
        return
    for number, image in enumerate([*doctree.findall(nodes.image)]):
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg" and path.is_file():
            svg = inlined(path.read_text(encoding="utf8"), f"f{number}", image.get("alt", ""), image["classes"])
            image.replace_self(nodes.raw("", f'<div class="drawing"><div>{svg}</div></div>', format="html"))


def setup(app):
    """Connect the extension."""
    app.connect("doctree-resolved", draw)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

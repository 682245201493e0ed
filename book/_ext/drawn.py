"""SVG figures become part of their page, drawn in the page's own ink, on light and on dark ground.

What is black, white or grey follows the page: black turns into the colour of its text, white into that of its
background, a grey into the mixture of both. The colours of fedlib's palette are lighter on dark ground (custom.css).
Every other colour is data and stays, and so does the text that stands on it. Images, such as digits and matrices, are
drawn on the page's ground, with the numbers on them: in the dark white turns dark, and red stays red (a11y.js). So are
very pale and very dark fills. In a matrix of signed numbers, white becomes a grey between the page and both colours.
None of the book's figures is a photo in colour.

Words are text in the page's typeface, each as wide as Matplotlib's outlines of it were, so that none can overflow.
Short ones, such as numbers at an axis, are centred instead.

Two styles of Matplotlib would need each figure drawn twice, and no reader's own colours; a CSS filter over
all figures would turn photos into their negatives.
"""

import html
import re
import xml.etree.ElementTree as ET
from base64 import b64decode
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from docutils import nodes
from matplotlib.colors import is_color_like, to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.image import imread
from matplotlib.textpath import text_to_path

from fedlib.plotting import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
INK, PAPER = "currentColor", "var(--figure-paper)"
GREY_LINE = 40  # how far the channels of a grey may lie apart, of 255
SPANS = {"fill": 16, "stroke": GREY_LINE}  # pale blue is a fill's own colour
PALETTE = {colour.lower() for colour in COLOURS[:-1]}  # without black
DROPPED = {ET.Comment, *(f"{SVG}{name}" for name in ("metadata", "style", "title"))}
SHORT = 5  # characters
NARROW = 480  # points: a figure that is not wider gets the width of the text, others that of code
LARGER = 1.15  # so that Source Sans has the letters of Matplotlib's DejaVu Sans, and hardly another width
NUMBER = r"-?\d*\.?\d+(?:e-?\d+)?"
XLINK = "http://www.w3.org/1999/xlink"
ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", XLINK)


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
    if colour in PALETTE:
        return f"var(--c{colour[1:]}, {colour})"
    if colour == "none" or not is_color_like(colour):  # such as a gradient
        return colour
    channels = [round(255 * channel) for channel in to_rgb(colour)]
    if max(channels) - min(channels) > span:
        return colour
    ink = round(100 - sum(channels) / 7.65)
    if ink in (0, 100):
        return INK if ink else PAPER
    return f"color-mix(in srgb, {INK} {ink}%, {PAPER})"


def moved(element):
    """How far an element is moved to the right and down."""
    found = re.search(rf"translate\(({NUMBER})[ ,]+({NUMBER})\)", element.get("transform", ""))
    return [float(n) for n in found.groups()] if found else [float(element.get(at, 0)) for at in "xy"]


def is_signed(image):
    """Whether an image has both colours of a scale for signed numbers, red and blue or green and purple."""
    red, green, blue = imread(BytesIO(b64decode(image.get(f"{{{XLINK}}}href").partition(",")[2])))[..., :3].T
    return any(many.min() < -0.1 and many.max() > 0.1 for many in (red - blue, red - green))


def stands_on(image, text):
    """Whether the middle of a text of Matplotlib's lies on an image."""
    x, y, width, height = (float(re.match(NUMBER, image.get(k, "0"))[0]) for k in ("x", "y", "width", "height"))
    if "scale(1 -1)" in image.get("transform", ""):  # Matplotlib's images stand on their head
        y = -y - height - moved(image)[1]
    left, top = moved(text)
    across = "rotate" not in text.get("transform", "")
    middle = left + across * (float(text.get("textLength", 0)) / 2 + float(text.get("x", 0)))
    return 0 <= middle - x <= width and 0 <= top - 3 - y <= height


def lettered(root):
    """Write as text what Matplotlib has drawn as outlines: a comment before them says the words."""
    for parent in [*root.iter(f"{SVG}g")]:
        for words, text in pairwise([*parent]):
            place, _, scale = text.get("transform", "").partition(" scale(")
            if words.tag is ET.Comment and scale:
                said, size = html.unescape(words.text.strip()), 100 * float(re.match(NUMBER, scale)[0])
                width, _, _ = text_to_path.get_text_width_height_descent(said, FontProperties(size=size), "$" in said)
                style = styles_of(text) | {"font-size": f"{LARGER * size:.4g}px"}
                text[:], text.text, text.tag = [], "", f"{SVG}text"
                if len(said) > SHORT:
                    text.attrib |= {"transform": place, "textLength": f"{width:.1f}", "lengthAdjust": "spacing"}
                else:
                    text.attrib |= {"transform": place, "x": f"{width / 2:.1f}", "text-anchor": "middle"}
                restyle(text, style)
                write(text, said)


def write(text, said):
    """Write words, and formulas between dollar signs: letters slanted, what stands above and below the line smaller."""
    if "$" not in said:
        text.text = said
        return
    risen = 0
    for i, part in enumerate(said.split("$")):
        part = re.sub(r"\\mathdefault\{(.*)\}", r"\1", part).replace("-", "\N{MINUS SIGN}") if i % 2 else part
        part = re.sub(r"\\([a-z]+) ?", lambda name: html.unescape(f"&{name[1].removeprefix('var')};"), part)
        for piece in filter(None, re.split(r"([_^](?:\{.*?\}|.)|[^\W\d_])" if i % 2 else "$", part)):
            height, size = {"^": (-0.4, 0.7), "_": (0.2, 0.7)}.get(piece[0] if i % 2 else "", (0, 1))
            slant = "italic" if i % 2 and re.search(r"[^\W\d_]", piece) else "normal"
            span = ET.SubElement(text, f"{SVG}tspan", dy=f"{(height - risen) / size:.2f}em")
            restyle(span, {"font-size": f"{size:.0%}", "font-style": slant})
            span.text, risen = re.sub(r"^[_^]\{?|\}$", "", piece) if size < 1 else piece, height


def recolour(element, images):
    """Give an element the colours of the page; a text that stands on an image keeps its own."""
    style = styles_of(element)
    if element.tag == f"{SVG}text":
        style.setdefault("fill", "#000000")
        on = any(stands_on(image, element) for image in images)
        element.set("class", "page-ground" if on else "ink")
        if not on:
            style["fill"] = on_page(style["fill"], GREY_LINE)
    else:
        style |= {name: on_page(style[name], span) for name, span in SPANS.items() if name in style}
        fill = style.get("fill", "")
        if fill.startswith("#") and not 0.3 < sum(to_rgb(fill)) / 3 < 0.8:
            element.set("class", "page-ground")
    restyle(element, style)


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
    root = ET.fromstring(svg, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    lettered(root)
    for parent in [*root.iter()]:
        for child in [c for c in parent if c.tag in DROPPED]:
            parent.remove(child)
    images = [*root.iter(f"{SVG}image")]
    for image in images:
        image.set("class", "page-ground signed" if is_signed(image) else "page-ground")
    for element in root.iterfind(".//*"):
        recolour(element, images)
    for ground in root.iterfind(".//*[@id='patch_1']/"):  # of the whole figure
        restyle(ground, styles_of(ground) | {"fill": "none"})
    wide = ["wide"] * (float(root.get("viewBox").split()[2]) > NARROW)
    root.attrib |= {"role": "img", "aria-label": alt, "class": " ".join(["drawn", *wide, *classes])}
    root.attrib |= {"fill": INK, "stroke-linejoin": "round"}  # Matplotlib's style sheet would hold for the whole page
    for group in root.iter(f"{SVG}g"):
        if part := re.match("axes|matplotlib", group.get("id", "")):
            group.set("data-part", part[0])  # a panel or one of its two axes: a11y.js puts panels below each other
    head, end, inner = ET.tostring(root, encoding="unicode").partition(">")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', inner))
    inner = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", inner)
    inner = re.sub(r'(href="#|url\(#)', rf"\1{name}-", inner).replace(" xlink:href=", " href=")
    inner = re.sub(r' (?:d|x|y|width|height|transform|points)="[^"]*"', rounded, inner)
    return re.sub(r">\s+<", "><", head.replace(f' xmlns:xlink="{XLINK}"', "") + end + inner)


def draw(app, doctree, docname):
    """Put the drawing in place of each image that is an SVG file of the book."""
    if app.builder.format != "html":
        return
    for number, image in enumerate([*doctree.findall(nodes.image)]):
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg" and path.is_file():
            svg = inlined(path.read_text(encoding="utf8"), f"f{number}", image.get("alt", ""), image["classes"])
            image.replace_self(nodes.raw("", f'<div class="drawing"><div>{svg}</div></div>', format="html"))

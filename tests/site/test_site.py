"""The built book in a real browser, on a desktop, in the dark and on a phone, with every other host blocked.

Build the pages first: ``make site-test`` does.
"""

import functools
import http.server
import io
import re
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from interactive_figures import barriers, chromium
from PIL import Image

SITE = Path(__file__).resolve().parents[2] / "_build/html"
PAGES = sorted(p.relative_to(SITE).as_posix() for d in ("book", "notebooks") for p in (SITE / d).rglob("*.html"))
VIEWS = {"desktop": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (390, 844, "light")}
WIDE = {"width": 1440, "height": 900}
# Every page in every view; of the library's modules, whose pages are made alike, each in one view.
MODULES = [path for path in PAGES if path.startswith("book/api/")]
CASES = [(path, view) for path in PAGES if path not in MODULES for view in VIEWS]
CASES += [(path, [*VIEWS][i % len(VIEWS)]) for i, path in enumerate(MODULES)]
HEAVIEST = 2_500_000  # bytes that a chapter's page may load, all in all
FRONT = 1_000_000  # and the first page
HTTP_ONLY = {"http://lib.stat.cmu.edu/datasets/boston", "http://yann.lecun.com/exdb/mnist/"}  # where two data sets lie
PATIENCE = 240_000  # milliseconds; several browsers may share a busy machine


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def base():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    with chromium() as browser:
        yield browser


def text(path):
    """What a page consists of."""
    return (SITE / path).read_text(encoding="utf8")


@pytest.fixture
def tab(browser):
    """Makes empty pages; at the end all are closed."""
    pages = []

    def new(width=1280, height=900, **how):
        pages.append(browser.new_page(viewport={"width": width, "height": height}, **how))
        pages[-1].set_default_timeout(PATIENCE)
        return pages[-1]

    yield new
    for page in pages:
        page.close()


@pytest.fixture
def opened(tab, base):
    """Opens a page of the book."""

    def visit(path, until="load", **how):
        page = tab(**how)
        page.goto(base + path, wait_until=until)
        return page

    return visit


# What of a page cannot be seen without scrolling sideways: tables with their last columns, and code, which may scroll
# on a narrow screen, if the Tab key stops there.
CUT = """() => {
    const wide = e => e.scrollWidth > e.clientWidth + 1;
    const box = e => {
        let b = e.parentElement;
        const scrolls = () => /auto|scroll|hidden/.test(getComputedStyle(b).overflowX);
        while (b.tagName !== "ARTICLE" && !scrolls()) b = b.parentElement;
        return b;
    };
    const beyond = e => e.getBoundingClientRect().right > box(e).getBoundingClientRect().right + 1;
    const cut = {
        code: [...document.querySelectorAll("article div.highlight pre")]
            .filter(e => wide(e) && (innerWidth > 900 || e.tabIndex < 0)),
        table: [...document.querySelectorAll("article table")].filter(t => wide(box(t)) || beyond(t)),
    };
    return Object.entries(cut).flatMap(([kind, all]) =>
        all.filter(e => e.checkVisibility()).map(e => `${kind}: ${e.innerText.slice(0, 60)}`));
}"""
SCREENS = """() => {
    const tall = e => e.getBoundingClientRect().height / innerHeight;
    return tall(document.querySelector("article")) - tall(document.querySelector("#exercises"));
}"""
# Text of figures that follows the page, and lines that keep their colour, with less contrast than WCAG asks for.
PALE = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const light = colour => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
            c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(document.body).backgroundColor);
    const contrast = colour => {
        const [low, high] = [ground, light(colour)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const texts = [...document.querySelectorAll("svg.drawn .ink")].map(e => [getComputedStyle(e).fill, 4.5]);
    const lines = [...document.querySelectorAll("svg.drawn path[style*='fill: none'][style*='stroke: #']")]
        .map(e => [getComputedStyle(e).stroke, 3]);
    return [...new Set([...texts, ...lines].filter(([c, least]) => contrast(c) < least).map(([c]) => c))];
}"""


# Pixels of the smallest text of each figure.
LETTERS = """() => [...document.querySelectorAll("article :is(svg.drawn, figure.fedlib svg)")]
    .filter(svg => svg.checkVisibility() && svg.viewBox.baseVal?.width && !svg.closest("[aria-hidden]")).map(svg => {
        const unit = t => Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b);
        const texts = [...svg.querySelectorAll("text")].map(t => unit(t) * parseFloat(getComputedStyle(t).fontSize));
        return Math.min(1e9, ...texts);
    })"""
# Matplotlib's figures that have a text that is cut off or lies on another.
PANELS = """() => [...document.querySelectorAll("article .drawing svg:has([data-part])")].flatMap((svg, i) => {
    const all = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    const out = boxes.filter(([, b]) => b.left < all.left - 1 || b.right > all.right + 1 || b.bottom > all.bottom + 2);
    const common = (b, c, from, to) => Math.min(b[to], c[to]) - Math.max(b[from], c[from]);
    const over = boxes.filter(([, b], i) => boxes.slice(0, i).some(([, c]) =>
        common(b, c, "left", "right") > 4 && common(b, c, "top", "bottom") > 6));
    return [...out, ...over].map(([s]) => `${i}: ${s}`);
})"""
SCROLL = """() => [...document.querySelectorAll("article :is(.drawing > div, figure.fedlib)")]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
SHIFTS = """new PerformanceObserver(list => {
    for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifted = (window.shifted ?? 0) + e.value;
}).observe({ type: "layout-shift", buffered: true })"""
# Characters of a line, for each of these paragraphs of at least four lines without a formula.
MEASURE = """paragraphs => [...document.querySelectorAll(paragraphs)]
    .filter(p => p.checkVisibility() && !p.querySelector("mjx-container"))
    .map(p => [p.innerText.length, Math.round(p.offsetHeight / parseFloat(getComputedStyle(p).lineHeight))])
    .filter(([, lines]) => lines >= 4).map(([characters, lines]) => characters / lines)"""


@pytest.fixture
def page(request, tab, base):
    width, height, scheme = VIEWS[request.param]
    page = tab(width, height, color_scheme=scheme)
    page.add_init_script(SHIFTS)
    page.view, page.scheme, page.problems, page.weight = request.param, scheme, [], []
    page.on("pageerror", lambda e: page.problems.append(f"script: {e}"))
    page.on("console", lambda m: page.problems.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("response", lambda r: page.problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
    page.on("response", lambda r: page.weight.append((int(r.headers.get("content-length", 0)), r.url)))

    def guard(route):
        if route.request.url.startswith((base, "data:")):
            route.continue_()
        else:
            page.problems.append(f"foreign host: {route.request.url}")
            route.abort()

    page.route("**/*", guard)
    return page


@pytest.mark.parametrize(("path", "page"), CASES, indirect=["page"])
def test_page(page, base, path):
    page.goto(base + path, wait_until="load")
    formulas = page.locator("span.math, div.math").count()
    page.wait_for_function("n => document.querySelectorAll('mjx-container').length >= n", arg=formulas)
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0, "TeX that does not parse"
    assert page.evaluate("window.shifted ?? 0") < 0.1, "the page jumps while it is loaded"
    alts = page.locator("article img").evaluate_all("images => images.map(i => i.alt)")
    drawn = page.locator("article svg.drawn:not([aria-hidden] *)")
    alts += drawn.evaluate_all("all => all.map(s => s.getAttribute('aria-label'))")
    # Sphinx writes the file's path where the author gave no alt text.
    assert all(a and not a.endswith((".png", ".svg", ".jpg")) for a in alts), "a figure without alt text"
    loaded = "images => images.every(i => i.complete && i.naturalWidth > 0)"
    assert page.locator("article img[src*='_images']").evaluate_all(loaded), "a figure that is not there"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    left = "formulas => formulas.every(f => f.getBoundingClientRect().left >= 0)"
    assert page.locator("div.math mjx-container").evaluate_all(left), "the left end of a formula cannot be reached"
    assert page.locator("html").get_attribute("data-theme") == page.scheme
    assert page.locator("article h1").count() == 1
    if path.startswith("notebooks/"):
        assert page.locator("p.running").inner_text().startswith("Heterogeneous federated learning \u203a ")
    words = page.locator("article").inner_text()
    assert "\r" not in words and "it/s]" not in words, "a progress bar on the page"
    assert not re.search(r"(?<![\w.])[-\u2212]0\.0+(?![\d.])", words), "a minus before nothing"
    limit = HEAVIEST if path.startswith("notebooks/") else FRONT if path == "book/index.html" else float("inf")
    assert sum(size for size, _ in page.weight) <= limit, sorted(page.weight)[-5:]
    assert page.evaluate(CUT) == [], "out of sight"
    assert page.evaluate(SCROLL) == [], "figures that scroll"
    assert page.evaluate(PANELS) == [], "figures of which something cannot be seen"
    if page.view == "phone":
        assert min(page.evaluate(LETTERS), default=9) >= 8.9, "figures that cannot be read on a phone"
    if page.view == "dark":
        assert page.evaluate(PALE) == [], "pale in the dark"
    if page.view == "desktop":
        if path.startswith("notebooks/"):
            assert page.evaluate(SCREENS) <= 16, "too long for a class: screens without exercises"
        most = {"article p:not(figcaption p)": 75, "article figcaption p": 80}  # a caption is as wide, but smaller
        for paragraphs, characters in most.items():
            assert max(page.evaluate(MEASURE, paragraphs), default=0) <= characters, "characters on a line"
        page.set_viewport_size(WIDE)
        assert page.evaluate(CUT) == [], "out of sight at 1440 pixels"
    # Axe would fetch the style sheets' imports anew, from a wrong folder.
    assert barriers(page, preload=False) == [], "accessibility"
    assert page.problems == []


def test_links_lead_somewhere(opened, base):
    page, broken, external = opened(PAGES[0]), [], set()
    for path in PAGES:
        page.goto(base + path, wait_until="load")
        shown = page.locator("article a[href]").evaluate_all("links => links.map(a => a.href)")
        external |= {x.split("#")[0] for x in shown if not x.startswith((base, "http://localhost:"))}
        links = page.locator("main a[href]:not([hidden] a)").evaluate_all("links => links.map(a => a.href)")
        for link in {x for x in links if x.startswith(base)}:
            target, _, anchor = link.removeprefix(base).partition("#")
            file = SITE / target.split("?")[0]
            if file.is_dir():
                file /= "index.html"
            if not file.exists() or (anchor and f'id="{anchor}"' not in text(file)):
                broken.append(f"{path} -> {link}")
    # For those who may ask other hosts, as the weekly job does.
    (SITE.parent / "external-links.txt").write_text("".join(f"{x}\n" for x in sorted(external)), encoding="utf8")
    assert broken == []
    unsafe = {x for x in external if not x.startswith("https://")}
    assert unsafe <= HTTP_ONLY, "a link that is neither ours nor safe"


# A chapter, among how many hits it must be, and words; FedAvg's comes after the entries of the glossary.
SOUGHT = [("01_fedavg", 3, "FedAvg"), ("05_cfl_geometry", 2, "cosine")]
SOUGHT += [("02_clients_differ", 1, words) for words in ("non-IID", "noniid")]
SOUGHT += [("04_personal_models", 3, words) for words in ("personalised", "personalized")]


@pytest.mark.parametrize(("chapter", "places", "words"), SOUGHT)
def test_search_finds(opened, chapter, places, words):
    page = opened(f"search.html?q={words}")
    page.get_by_text("Search finished").first.wait_for()  # hits come in one by one
    links = page.locator("#search-results li a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert any(chapter in link for link in links[:places]), links


CHAPTER = "notebooks/01_fedavg.html"
STOP = """() => {
    const e = document.activeElement, style = getComputedStyle(e);
    const outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    const ring = /\\) 0px 0px 0px 3px(?! inset)/.test(style.boxShadow);
    e.dataset.reached = "";
    return {name: e.outerHTML.slice(0, 120), end: e === document.body, visible: outline || ring};
}"""


@pytest.fixture
def chapter(opened):
    """A chapter on a desktop, in the dark, with its formulas set."""
    page = opened(CHAPTER, color_scheme="dark")
    page.wait_for_function("() => MathJax.startup.promise.then(() => document.querySelector('mjx-container') !== null)")
    return page


def test_the_tab_key_reaches_everything(chapter):
    """And shows where it is, stops at no formula within a sentence, and leaves the page at its end."""
    hidden = []
    for _ in range(300):
        chapter.keyboard.press("Tab")
        stop = chapter.evaluate(STOP)
        if stop["end"]:
            break
        if not stop["visible"]:
            hidden.append(stop["name"])
    assert stop["end"], "the Tab key is trapped"
    assert hidden == [], "the focus cannot be seen"
    controls = ".skip-link a, .search-button__button, .theme-switch-button, .bd-sidebar-primary nav a, article summary"
    below = "article button.copybtn, .bd-header-article .dropdown-toggle, .prev-next-footer a, .bd-sidebar-secondary a"
    for what in f"{controls}, {below}".split(", "):
        shown = [e for e in chapter.locator(what).all() if e.is_visible()]
        assert shown, f"no {what}"
        assert all(e.get_attribute("data-reached") == "" for e in shown), f"{what}: out of the keyboard's reach"
    assert chapter.locator("span.math [data-reached]").count() == 0


def test_the_enter_key_works_the_controls(chapter):
    cell = chapter.locator("article details.hide").first
    cell.locator("summary").press("Enter")
    assert cell.evaluate("e => e.open")
    copy = chapter.locator("article button.copybtn:visible").first
    copy.press("Enter")
    chapter.locator("article button.copybtn.success").wait_for()
    seen = "e => getComputedStyle(e).opacity > 0"  # it fades in; a button that only a mouse can see never does
    chapter.wait_for_function(seen, arg=copy.element_handle(), timeout=5000)
    search = chapter.locator(".search-button__button:visible").first
    search.press("Enter")
    assert chapter.locator("dialog[open] input:focus").count() == 1
    chapter.keyboard.press("Escape")
    assert chapter.locator("dialog[open]").count() == 0 and search.evaluate("e => e === document.activeElement")
    menu = chapter.locator(".bd-header-article .dropdown-toggle").last
    menu.press("Enter")
    chapter.keyboard.press("Tab")
    assert chapter.locator(".dropdown-menu.show a:focus, .dropdown-menu.show button:focus").count() == 1
    chapter.keyboard.press("Escape")
    assert chapter.locator(".dropdown-menu.show").count() == 0 and menu.evaluate("e => e === document.activeElement")
    mode = chapter.locator("html").get_attribute("data-mode")
    chapter.locator(".theme-switch-button:visible").first.press("Enter")
    assert chapter.locator("html").get_attribute("data-mode") != mode
    chapter.locator(".skip-link a").press("Enter")
    assert chapter.url.endswith("#main-content")


def test_tables_on_a_phone(opened):
    """One that is too wide becomes a block for each row, which says the name of the column before each cell."""
    page = opened("notebooks/07_clustering_rivals.html", width=390, height=844)
    look = """tables => tables.filter(t => t.checkVisibility()).map(table => ({
        fits: table.getBoundingClientRect().right <= innerWidth,
        stacked: table.matches(".stacked"),
        roles: [...table.querySelectorAll("tbody *:is(tr, th, td)")].map(e => e.getAttribute("role")),
        named: [...table.querySelectorAll("tbody tr > td:not(:first-child)")].every(e => e.dataset.column),
        sizes: [...table.querySelectorAll("tbody td")].map(e => parseFloat(getComputedStyle(e).fontSize)),
    }))"""
    tables = page.locator("article table").evaluate_all(look)
    assert any(t["stacked"] for t in tables) and not all(t["stacked"] for t in tables)
    for t in tables:
        assert t["fits"] and min(t["sizes"]) >= 12, t
        if t["stacked"]:
            assert t["named"] and set(t["roles"]) <= {"row", "rowheader", "cell"}, t
    page.set_viewport_size(WIDE)
    tables = page.locator("article table").evaluate_all(look)
    assert not any(t["stacked"] for t in tables), "there is room again"


def test_code_on_a_phone(opened):
    """A line that is too long goes on below, further in, and nothing is out of sight."""
    page = opened("notebooks/06_cfl.html", width=390, height=844)
    code = page.locator("article :is(div.cell_input, div.cell_output) pre:visible")
    assert code.count() > 9 and code.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
    hang = "all => all.filter(e => e.offsetHeight > 20).map(e => parseFloat(getComputedStyle(e).textIndent))"
    long = page.locator("article div.cell_input pre:visible > .line").evaluate_all(hang)
    assert long and max(long) < -10


def test_panels_stand_below_each_other_on_a_phone(opened):
    """And beside each other again where there is room."""
    page = opened("notebooks/06_cfl.html", width=390, height=844)
    look = """all => all.map(svg => [...svg.querySelectorAll("[data-part=axes]")]
        .map(e => e.querySelector("path").getBoundingClientRect()).map(b => [b.left, b.top].map(Math.round)))"""
    figures = page.locator("article .drawing svg")
    narrow = figures.evaluate_all(look)
    page.set_viewport_size(WIDE)
    wide = figures.evaluate_all(look)
    beside = [i for i, places in enumerate(wide) if len(places) == 2 and places[0][0] + 100 < places[1][0]]
    assert beside and all(wide[i][0][1] == wide[i][1][1] for i in beside)
    for (left, top), (same, below) in (narrow[i] for i in beside):
        assert left == same and top + 100 < below, "its numbers are there again"
    page.set_viewport_size({"width": 390, "height": 844})
    assert figures.evaluate_all(look) == narrow


def test_the_round_stays_in_sight_on_a_phone(opened):
    """Chapter 6's figure is longer than the screen: its slider stays below the bar while the curves pass by."""
    page = opened("notebooks/06_cfl.html", width=390, height=844)
    figure = page.locator('figure[data-fedlib="split"]')
    figure.locator(".chart").evaluate("e => scrollTo({ top: e.getBoundingClientRect().top + scrollY - 250 })")
    bar, slider = page.locator(".bd-header-article").bounding_box(), figure.locator("input").first.bounding_box()
    assert bar["y"] + bar["height"] <= slider["y"] + 1 < 250


def drawn_width(button):
    """How wide is what a button shows within its border, in pixels of the screen."""
    shown = np.asarray(Image.open(io.BytesIO(button.screenshot(animations="disabled"))).convert("L"), dtype=int)
    inside = shown[3:-3, 3:-3]
    (columns,) = np.nonzero((abs(inside - np.median(inside)) > 50).any(axis=0)) if inside.size else ([],)
    return int(columns[-1] - columns[0] + 1) if len(columns) else 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", ["book/index.html", CHAPTER, "book/api/fedlib.federation.html"])
def test_every_button_shows_a_text_or_a_picture(opened, path, width):
    """In the pixels, so that it does not matter how an icon is drawn."""
    page = opened(path, "networkidle", width=width)
    seen = "e => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.offsetWidth > 1"
    buttons = [e for e in page.locator("button, .btn, article a.button").all() if e.evaluate(seen)]
    bare = {e.evaluate("e => e.outerHTML.slice(0, 150)"): drawn_width(e) for e in buttons}
    assert len(bare) > 3 and {name: pixels for name, pixels in bare.items() if pixels < 12} == {}


@pytest.mark.parametrize("width", [1280, 390])
def test_the_menu_opens_the_contents(opened, width):
    """On a phone the bars at the top do; on a desktop they close it."""
    page = opened(CHAPTER, width=width, height=844)
    seventh = page.locator(".bd-sidebar-primary a[href='07_clustering_rivals.html'], dialog a[href*='07_']").first
    before = seventh.is_visible()
    page.locator("button.primary-toggle:visible").first.click()
    page.wait_for_timeout(500)
    in_sight = "e => e.checkVisibility() && e.getBoundingClientRect().right > 0"
    assert before == (width == 1280) and seventh.evaluate(in_sight) != before


@pytest.mark.parametrize(("width", "place"), [(1280, 500), (390, 844)])
def test_reading_starts_in_sight(opened, width, place):
    start = opened("book/index.html", width=width, height=844).get_by_role("link", name="Start reading").bounding_box()
    assert start["y"] + start["height"] <= place


def test_the_search_box_shows_the_first_letter(chapter):
    """Beside its lens, in the dialog."""
    chapter.locator(".search-button__button:visible").first.click()
    chapter.locator("dialog[open] input").wait_for()
    beside = """input => {
        const lens = input.form.querySelector("i, svg").getBoundingClientRect();
        return input.getBoundingClientRect().left + parseFloat(getComputedStyle(input).paddingLeft) - lens.right;
    }"""
    assert chapter.locator("dialog[open] input").evaluate(beside) >= 4


def test_a_page_that_is_not_there(tab, base):
    """GitHub shows 404.html under whatever address was asked for, with the book's search, contents and colours."""
    folder = urlsplit(re.search(r'rel="canonical" href="([^"]*)', text(PAGES[0]))[1]).path
    folder, page, problems = folder.removesuffix(PAGES[0]), tab(), []

    def published(route):
        file = SITE / urlsplit(route.request.url).path.removeprefix(folder)
        if "/gone/" in route.request.url:
            route.fulfill(status=404, path=SITE / "404.html")
        elif file.is_file() and route.request.url.startswith(f"{base}{folder[1:]}"):
            route.fulfill(path=file)
        else:
            problems.append(route.request.url)
            route.abort()

    page.route("**/*", published)
    page.goto(f"{base}{folder[1:]}book/gone/chapter.html", wait_until="load")
    assert page.locator("article h1").inner_text() == "Page not found"
    assert page.locator(".bd-sidebar-primary a[href*='07_']").count() == 1
    page.locator(".search-button__button:visible").first.click()
    page.locator("dialog[open] input").fill("CFL")
    page.keyboard.press("Enter")
    page.get_by_text("Search finished").first.wait_for()
    assert problems == []


def test_a_sitemap_lists_every_page():
    listed = re.findall(r"<loc>(.*?)</loc>", text("sitemap.xml"))
    assert [a for a in listed if not a.startswith("https://")] == []
    base = listed[0].partition("book/")[0]
    assert {a.removeprefix(base) for a in listed} == set(PAGES)
    for path in PAGES:
        assert f'<link rel="canonical" href="{base}{path}" />' in text(path)


def test_figures_are_numbered_by_chapter_and_from_1_on_other_pages():
    for path in PAGES:
        chapter = f"{int(Path(path).name[:2])}." if path.startswith("notebooks/") else ""
        numbers = re.findall(r'class="caption-number">Figure ([\d.]+) ', text(path))
        assert numbers == [f"{chapter}{i}" for i in range(1, len(numbers) + 1)], path


def test_paper(chapter):
    """Printed: the text without controls, and the cells that the reader has opened; light, whatever is shown."""
    cells = chapter.locator("article details.hide")
    cells.first.locator("summary").click()
    chapter.set_viewport_size({"width": 597, "height": 900})  # A4 less its margins
    chapter.emulate_media(media="print", color_scheme="dark")
    controls = "button, details.hide > summary, footer, .headerlink, .bd-links, .bd-sidebar-secondary"
    assert [e.evaluate("e => e.outerHTML") for e in chapter.locator(controls).all() if e.is_visible()] == []
    assert cells.nth(0).locator("pre").first.is_visible() and not cells.nth(1).is_visible()
    cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth)"
    wide = chapter.locator("article :is(pre, .output, div.math):visible, article :is(img, svg.drawn)")
    assert wide.evaluate_all(f"all => ({cut})(all).map(e => e.outerHTML.slice(0, 200))") == []
    theme = "window.printed = document.documentElement.dataset.theme"
    chapter.evaluate(f"addEventListener('beforeprint', () => {{ {theme} }})")
    assert chapter.pdf(format="A4").startswith(b"%PDF")
    assert chapter.evaluate("window.printed") == "light"
    assert chapter.locator("html").get_attribute("data-theme") == "dark"


def test_every_page_has_a_description_and_a_preview():
    for path in PAGES:
        html = text(path)
        meta = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', html))
        assert len(meta["description"]) > 60 or path in MODULES, path
        assert len(meta["description"]) <= 210 and meta["description"] == meta["og:description"], path
        assert meta["og:url"].endswith(path) and meta["og:site_name"].startswith("Heterogeneous")
        assert (SITE / meta["og:image"].removeprefix(meta["og:url"].removesuffix(path))).is_file()
        (icon,) = re.findall(r'<link rel="icon" href="([^"]*)"', html)
        assert ((SITE / path).parent / icon).is_file()

"""Chromium, and pages with one figure, as the book, and as Colab shows an output cell."""

import shutil
from contextlib import contextmanager
from html import escape
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "book/figures"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"


@contextmanager
def chromium():
    assert CHROMIUM, "no Chromium found: apt-get install chromium"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


def compute(browser, kind, expression, argument=None):
    """What the functions of a figure's script give for `argument`, which `expression` calls `a`."""
    page = browser.new_page()
    try:
        source = (FIGURES / "common.js").read_text("utf8") + (FIGURES / f"{kind}.js").read_text("utf8")
        return page.evaluate(f"(a) => {{ {source}\n return {expression}; }}", argument)
    finally:
        page.close()


def document(html, theme="light", sandboxed=False):
    """A page, or one with a frame that may run scripts and nothing else."""
    colours = "background:#14181e;color:#ced6dd" if theme == "dark" else "background:#fff;color:#222832"
    body = f'<body style="margin:8px;{colours}"><main><h1>Figure</h1>{html}</main>'
    view = '<meta name="viewport" content="width=device-width">'
    page = f'<!doctype html><html lang="en" data-theme="{theme}"><head><title>t</title>{view}</head>{body}</html>'
    if not sandboxed:
        return page
    frame = f'<iframe title="output" sandbox="allow-scripts" width="100%" height="1600" srcdoc="{escape(page)}">'
    head = f"<!doctype html><html lang='en'><head><title>t</title>{view}</head>"
    return f"{head}<body style='margin:0'>{frame}</iframe></body></html>"


def open_page(browser, html, width=1000, touch=False, **options):
    """A page that notes what goes wrong: errors, and each request that leaves it."""
    window = {"width": width, "height": 1000}
    page = browser.new_context(viewport=window, has_touch=touch, is_mobile=touch, **options).new_page()
    page.set_default_timeout(60_000)
    page.problems = []
    page.on("pageerror", lambda e: page.problems.append(f"script: {e}"))
    page.on("console", lambda m: page.problems.append(m.text) if m.type in ("error", "warning") else None)
    page.route("**/*", lambda route: (page.problems.append(f"request: {route.request.url[:80]!r}"), route.abort()))
    page.set_content(html)
    return page


def barriers(page, **options):
    """What Axe finds that keeps somebody out."""
    found = Axe().run(page, options=options).response["violations"]
    return [(v["help"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]

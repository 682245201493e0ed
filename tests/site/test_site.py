"""The built book in a real browser, on a desktop, in the dark and on a phone, with every other host blocked.

Build the pages first: ``make site-test`` does.
"""

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

SITE = Path(__file__).resolve().parents[2] / "_build/html"
PAGES = sorted(p.relative_to(SITE).as_posix() for d in ("book", "notebooks") for p in (SITE / d).rglob("*.html"))
VIEWS = {"desktop": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (390, 844, "light")}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
AXE = {"preload": False}  # axe would fetch the style sheets' imports anew, from a wrong folder


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
    assert CHROMIUM, "no Chromium found: apt-get install chromium"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@pytest.fixture(params=VIEWS.values(), ids=VIEWS.keys())
def page(request, browser, base):
    width, height, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.scheme, page.problems = scheme, []
    page.on("pageerror", lambda e: page.problems.append(f"script: {e}"))
    page.on("console", lambda m: page.problems.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("response", lambda r: page.problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)

    def guard(route):
        if route.request.url.startswith((base, "data:")):
            route.continue_()
        else:
            page.problems.append(f"foreign host: {route.request.url}")
            route.abort()

    page.route("**/*", guard)
    yield page
    context.close()


def test_there_are_pages():
    assert "notebooks/01_fedavg.html" in PAGES


@pytest.mark.parametrize("path", PAGES)
def test_page(page, base, path):
    page.goto(base + path, wait_until="load")
    formulas = page.locator("span.math, div.math").count()
    if formulas:
        page.wait_for_function(
            "n => document.querySelectorAll('mjx-container').length >= n", arg=formulas, timeout=60_000
        )
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0, "TeX that does not parse"
    alts = page.locator("article img").evaluate_all("images => images.map(i => i.alt)")
    # Sphinx writes the file's path where the author gave no alt text.
    assert all(a and not a.endswith((".png", ".svg", ".jpg")) for a in alts), "a figure without alt text"
    loaded = "images => images.every(i => i.complete && i.naturalWidth > 0)"
    assert page.locator("article img[src*='_images']").evaluate_all(loaded), "a figure that is not there"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    left = "formulas => formulas.every(f => f.getBoundingClientRect().left >= 0)"
    assert page.locator("div.math mjx-container").evaluate_all(left), "the left end of a formula cannot be reached"
    assert page.locator("html").get_attribute("data-theme") == page.scheme
    assert page.locator("article h1").count() == 1
    text = page.locator("article").inner_text()
    assert "\r" not in text and "it/s]" not in text, "a progress bar on the page"
    bad = [
        f"{v['id']}: {v['help']} {[n['target'] for n in v['nodes'][:3]]}"
        for v in Axe().run(page, options=AXE).response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert bad == [], "accessibility"
    assert page.problems == []


def test_links_lead_somewhere(browser, base):
    page = browser.new_page()
    broken = []
    for path in PAGES:
        page.goto(base + path, wait_until="load")
        links = page.locator("main a[href]").evaluate_all("links => links.map(a => a.href)")
        for link in {x for x in links if x.startswith(base)}:
            target, _, anchor = link.removeprefix(base).partition("#")
            file = SITE / target.split("?")[0]
            if file.is_dir():
                file /= "index.html"
            if not file.exists() or (anchor and f'id="{anchor}"' not in file.read_text(encoding="utf8")):
                broken.append(f"{path} -> {link}")
    page.close()
    assert broken == []


def test_search_finds_fedavg(browser, base):
    page = browser.new_page()
    page.goto(base + "search.html?q=FedAvg")
    page.locator('#search-results li a[href*="01_fedavg"]').first.wait_for()  # hits come in one by one
    page.close()

"""Figures that move: complete without a script, right with one, within reach of keys and fingers, and light."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from cfl_worlds import conflicting
from interactive_figures import FIGURES, chromium, compute, document, open_page
from scipy import stats
from twins import classification_loss, client_data, twin

import fedlib
from book import figures, results
from book.experiments.cfl_variants import RelativeCFL, WatchedCFL, replay
from book.experiments.scoreboard import CONTROLS, METHODS, OURS
from fedlib import Key, models
from fedlib.algorithms import CFL, FedAvg, FedProx, Scaffold
from fedlib.extensions import SplitHalfCFL
from fedlib.losses import mse
from fedlib.server.clusters import bipartition, cosine_similarity
from fedlib.server.distance_clusters import dbscan
from fedlib.statistics import compare, interval

K, T, GROUPS = 20, 60, np.arange(20) % 4
RULE = {"eps1": 0.1, "eps2": 0.4, "rest": 5}


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def show(browser):
    """Open a figure on a page, or in a frame; nothing may go wrong there, and no request may leave it."""
    pages = []

    def opened(html, theme="light", sandboxed=False, **options):
        pages.append(open_page(browser, document(html, theme, sandboxed), color_scheme=theme, **options))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()
    assert [problem for page in pages for problem in page.problems] == []


def said(page):
    return page.locator("output.says").inner_text()


def wait_for_other_words(page, before):
    page.wait_for_function("before => document.querySelector('output.says').textContent !== before", arg=before)


def cfl(**settings):
    return RelativeCFL(lambda params, batch: 0, **RULE | settings)


@pytest.fixture(scope="module")
def run():
    """The end of a run of CFL: 20 clients in four groups, cut in two by two."""
    params, predict, _ = twin("MLP")
    algorithm = WatchedCFL(classification_loss(predict), lr=0.1, batch_size=8, **RULE)
    return fedlib.fit(algorithm, params, client_data(conflicting(4, 5)), T, device="cpu", progress=False).state


@pytest.fixture(scope="module")
def history():
    t = np.arange(5, T + 1, 5)
    return pd.DataFrame({"round": t, **{f"group {g}_accuracy": 1 - 0.8 / (1 + t / (20 + g)) for g in range(4)}})


@pytest.fixture(scope="module")
def slider(run, history):
    return figures.split_slider(cfl(), run, GROUPS, history).html


def pairs(seed=0, k=24, measured=14):
    """Gains of clients of two kinds, of which some pairs were measured, two distances, and the kinds."""
    random, kind = np.random.RandomState(seed), np.arange(k) % 2
    noise = random.randn(k, k)
    gain = np.where(kind[:, None] == kind, 0.08, -0.3) + (noise + noise.T) / 20
    known = np.arange(k) < measured
    gain[known[:, None] != known] = np.nan
    place = random.randn(k, 3) + 2 * kind[:, None]
    far = np.linalg.norm(place[:, None] - place, axis=2)
    return gain, {"length": far, "squared": far**2}, kind


SCOREBOARD, TEACHERS = (results.load(name)["figures"] for name in ("scoreboard", "fedcg_collapse"))
STORED = {"playground": figures.playground, "steps": figures.local_steps}
MADE = STORED | {
    "partition": lambda: figures.partition(np.arange(2000) % 10, min_rows=1),
    "helps": lambda: figures.who_helps_whom(*pairs()),
    "teacher": figures.teachers_t,
    "chooser": lambda: figures.chooser(SCOREBOARD),
}


@pytest.fixture(scope="module", params=["split", *MADE])
def html(request, slider):
    return slider if request.param == "split" else MADE[request.param]().html


def data_of(html):
    return re.search(r"<script type='application/json'>(.*?)</script>", html, re.S)[1]


def test_each_is_complete_without_its_script(show, html):
    """A picture, its caption and its numbers; no control that does nothing."""
    page = show(html, java_script_enabled=False)
    assert page.locator("figure svg").count() >= 1 and page.locator("input, button, select").count() == 0
    assert len(page.locator("figcaption").inner_text()) > 40
    page.locator("summary").click()
    assert page.locator("details tbody tr").count() >= 3


def test_weight_and_source(html):
    assert len(gzip.compress(html.encode(), 9)) <= 40_000
    assert all(p.stat().st_size <= 20_000 for p in FIGURES.glob("*.js"))
    assert not re.search(r"https?://|\bsrc=|@import|url\(|\bid=", html), "a request, or a name that may clash"


def test_the_data_are_those_of_the_run(browser, run, slider):
    assert [(s.model, s.new, len(s.members)) for s in run.splits] == [(0, 1, 20), (1, 2, 10), (0, 3, 10)]
    data = data_of(slider)
    i, j = np.triu_indices(K, 1)
    expected = np.round(100 * run.cosines.double().numpy()[:, i, j])
    got = compute(browser, "split", "[1, 2, 31, 60].map((t) => [...cosines(JSON.parse(a))(t)])", data)
    np.testing.assert_array_equal(got, expected[[0, 1, 30, 59]])
    model, leaves = compute(browser, "split", "(({model, leaves}) => [model, leaves])(tree(JSON.parse(a), 60))", data)
    assert model == run.assignment.tolist() and leaves == [0, 3, 1, 2]


THRESHOLDS = [(0.1, 0.4), (0.1, 0.3), (0.1, 1.7), (0.105, 0.4), (0.12, 1.6), (0.15, 0.4), (0.11, 1.5), (0.05, 0.4)]
THRESHOLDS += [(0, 0), (0.5, 0.5)]


def test_other_thresholds_part_where_the_library_says(browser, run, slider, history):
    expected = [replay(cfl(eps1=a, eps2=b), run) for a, b in THRESHOLDS]
    got = compute(browser, "split", "a[1].map((eps) => replay(JSON.parse(a[0]), eps))", [data_of(slider), THRESHOLDS])
    assert [g and (g["round"], g["model"], g["due"]) for g in got] == expected
    assert len({e for e in expected if e}) > 4
    with pytest.raises(ValueError, match="rule by relative lengths; got SplitHalfCFL. Run RelativeCFL"):
        figures.split_slider(SplitHalfCFL(print), run, GROUPS, history)


# ---- the first page's ----


def test_the_front_figure_plays_once_by_itself(show, slider, history):
    """From round 1, in words without thresholds; a click on its slider before that would keep it still."""
    page = show(figures.split_front(slider).html)
    page.wait_for_function("t => document.querySelector('input').value === String(t)", arg=T)
    last = history.filter(like="group").iloc[-1].round(3).mean()
    assert said(page) == f"Round {T}: four models, right {100 * last:.0f} times in 100."
    page.locator("input").press("Home")
    page.wait_for_timeout(300)
    assert said(page) == "Round 1: one model for all." and page.locator("input").count() == 1
    assert "ε" not in page.locator("figure").inner_text()


def test_the_front_figure_stands_still_for_those_who_ask(show, run, slider):
    """And is the last round without a script."""
    page = show(figures.split_front(slider).html, reduced_motion="reduce")
    page.wait_for_timeout(500)
    assert page.locator("input").input_value() == "1"
    page.get_by_role("button", name="Next split").click()
    assert said(page).startswith(f"Round {run.splits[0].round}: the server splits")
    page = show(figures.split_front(slider).html, java_script_enabled=False)
    assert page.locator("input, button").count() == 0 and page.locator(".chart .grid").count() == 3
    assert said(page).startswith(f"Round {T}: 4 models, right ") and page.locator(".matrix path").count() > 5


# ---- every figure ----


def test_keys_move_every_control_and_the_sentence_changes(show, html):
    page = show(html)
    ranges = page.locator("input[type=range]").all()
    assert ranges and page.locator("output.says").get_attribute("aria-live") == "polite"
    for one in ranges:
        before = one.input_value()
        one.focus()
        page.keyboard.press("ArrowLeft" if before == one.get_attribute("max") else "ArrowRight")
        assert one.input_value() != before
    page.wait_for_timeout(300)  # drawn in the next frame
    before = said(page)
    assert len(before) > 40
    ranges[0].focus()
    page.keyboard.press("End" if ranges[0].input_value() == ranges[0].get_attribute("min") else "Home")
    wait_for_other_words(page, before)
    for radio in page.locator("input[type=radio]").all():
        radio.focus()
        page.keyboard.press("Space")
        assert radio.is_checked()


def test_touch_on_a_phone_in_a_sandboxed_frame(show, html):
    page = show(html, sandboxed=True, width=390, touch=True)
    frame = page.frame_locator("iframe")
    frame.locator("figure[data-live]").wait_for()
    for one in frame.locator("input[type=range]").all():
        box, before = one.bounding_box(), one.input_value()
        assert box["height"] >= 24, "too small for a finger"
        low, high = (float(one.get_attribute(end)) for end in ("min", "max"))
        side = 0.85 if float(before) < (low + high) / 2 else 0.3
        one.tap(position={"x": box["width"] * side, "y": box["height"] / 2})
        assert one.input_value() != before
    assert page.frames[1].evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the phone"


@pytest.mark.parametrize("kind", STORED)
def test_the_stored_picture_is_what_the_script_draws(browser, kind):
    assert compute(browser, kind, "still()") == (FIGURES / f"{kind}.html").read_text("utf8"), "python -m tools.stills"


@pytest.mark.parametrize("hidden", [0, 8])
@pytest.mark.parametrize("preset", ["xor", "against", "one", "three", "odd"])
def test_the_playground_has_the_numbers_of_the_library(browser, preset, hidden):
    """Full batches, one step a round, from the start of the script: FedAvg, its last updates, their cosines and cut."""
    script = """(() => {
        const state = {...fresh(a[0], a[2]), turn: [5, 0, 0, 40, 0, 0, -20, 0]};
        state.flip[5] = a[1] > 0;
        const clients = place(state);
        return {clients, start: begin(a[1]), ...solve(clients, a[1], 60)};
    })()"""
    got = compute(browser, "playground", script, [preset, hidden, 0.3 + 0.1 * hidden])
    points, begin = (torch.tensor(got[name], dtype=torch.float64) for name in ("clients", "start"))
    model, first = models.MLP((2, hidden, 1) if hidden else (2, 1)), begin[: 3 * max(hidden, 1)].reshape(-1, 3)
    start = {"dense1.weight": first[:, :2], "dense1.bias": first[:, 2]}
    if hidden:
        start |= {"dense2.weight": begin[None, 3 * hidden : -1], "dense2.bias": begin[-1:]}
    assert {name: tuple(p.shape) for name, p in start.items()} == model.shapes()
    data = fedlib.stack_clients(list(points[..., :2]), list(points[..., 2]))
    loss = lambda params, batch: mse(model(params, batch[0]), *batch[1:]) / 2  # noqa: E731
    algorithm = CFL(loss, eps1=0.0, eps2=0.0, lr=0.05, batch_size=None, epochs=1)  # which never splits
    state = fedlib.fit(algorithm, start, data, 60, device="cpu", progress=False).state
    update = algorithm.train(state, data, torch.arange(8), Key(0, 61)).per_client["update"]
    gradient = torch.cat([p.flatten(1) for p in update.values()], 1) / -0.05
    alpha = cosine_similarity(update)
    cut = bipartition(alpha)
    wanted = {"lengths": gradient.norm(dim=1), "mean": gradient.mean(0).norm(), "cosines": alpha}
    for name, value in (wanted | {"objective": cut.objective}).items():
        np.testing.assert_allclose(got[name], value, atol=1e-6, err_msg=name)
    assert got["part"] == cut.assignment.tolist()


def test_the_presets_say_what_the_chapter_says(browser):
    """Clients that no one model serves are cut, along their kinds; XOR is no quarrel for eight hidden units."""
    assert compute(browser, "playground", "RULE") == {k: figures.LENGTHS[k] for k in ("eps1", "eps2")}
    script = """Object.entries(PRESETS).flatMap(([k, p]) => [0, 8].map((h) => {
        const end = solve(place(fresh(k, 0.4)), h);
        return [k + h, [verdict(end, 0.4).cut, end.part, p.kinds]];
    }))"""
    found = dict(compute(browser, "playground", script))
    assert {name for name, (cut, _, _) in found.items() if cut} >= {"xor0", "against0", "against8"}
    assert not found["xor8"][0] and not found["one0"][0] and not found["one8"][0]
    assert all(found[name][1] == found[name][2] for name in ("xor0", "against0", "against8"))


def test_a_point_is_dragged(show):
    page = show(figures.playground().html)
    plane, before = page.locator(".plane svg").bounding_box(), said(page)
    scale = plane["width"] / 300
    point = page.locator(".plane svg path[stroke]").nth(3).bounding_box()
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.mouse.down()
    page.mouse.move(plane["x"] + 290 * scale, plane["y"] + 290 * scale, steps=3)
    page.mouse.up()
    wait_for_other_words(page, before)


@pytest.mark.parametrize("walk", [(1, 0.05, 0), (20, 0.05, 3), (50, 0.02, 1), (5, 0.1, 8), (50, 0.1, 0.5)])
def test_the_walks_are_those_of_the_library(browser, walk):
    """Three methods each; and where they end is where many rounds lead."""
    steps, lr, mu = walk
    curves = torch.tensor([[9.0, 1], [0.64, 4]], dtype=torch.float64)
    lowest = torch.tensor([[-1, 0.8], [1, -0.6]], dtype=torch.float64)
    x = torch.stack([torch.diag(c.sqrt()) for c in curves])
    data = fedlib.stack_clients(list(x), list(torch.einsum("kij,kj->ki", x, lowest)))
    start = {"theta": torch.tensor([1, 1.1], dtype=torch.float64)}
    script = "METHODS.map((m) => [walk(m, ...a, 12), walk(m, ...a, 4000).at(-1), end(m, ...a)])"
    got = compute(browser, "steps", script, [steps, lr, mu])
    for method, more, (walked, far, end) in zip((FedAvg, FedProx, Scaffold), ({}, {"mu": mu}, {}), got, strict=True):
        path, loss = [[1, 1.1]], lambda params, batch: mse(batch[0] @ params["theta"], *batch[1:])
        algorithm = method(loss, lr=lr, batch_size=None, epochs=steps, **more)
        note = [lambda t, state, entry: path.append(state.models["theta"][0].tolist())]
        fedlib.fit(algorithm, start, data, 12, callbacks=note, device="cpu", progress=False)
        np.testing.assert_allclose(walked, path, atol=1e-6)
        np.testing.assert_allclose(far, end, atol=1e-6)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_measures_of_partitions(browser, kind):
    """Those that the script takes of the counts it holds, of partitions drawn once more."""
    y = np.random.RandomState(1).randint(7, size=1500)
    draw, _, _, values, _ = list(figures._LEVELS.values())[kind]
    script = "JSON.parse(a[0]).kinds[a[1]].counts.map((draws) => draws.map(measures))"
    shown = data_of(figures.partition(y, 20, seed=3, draws=2, min_rows=1).html)
    got = compute(browser, "partition", script, [shown, kind])
    for value, draws in zip(values, got, strict=True):
        for seed, found in zip((3, 4), draws, strict=True):
            rows = draw(y, 20, value, seed=seed).rows
            own = np.stack([np.bincount(y[r], minlength=7) / len(r) for r in rows])
            far = np.abs(own - np.bincount(y) / len(y)).sum(1).mean() / 2
            size = [len(r) for r in rows]
            expected = [far, np.exp(stats.entropy(own, axis=1)).mean(), max(size) / min(size)]
            np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["length", "squared"])
def test_clusters_are_those_of_scikit_learn(browser, name):
    """At ten radii, some of them the distance of a pair; and from the last radius on all clients are one cluster."""
    gain, predicted, kind = pairs(1)
    held = json.loads(data_of(figures.who_helps_whom(gain, predicted, kind).html))
    distance = np.array(held["predicted"][name]["distance"])
    np.testing.assert_allclose(distance, predicted[name], atol=1e-6)
    i, j = np.triu_indices(len(distance), 1)
    ordered = np.sort(distance[i, j])
    radii = [*np.quantile(ordered, [0.01, 0.05, 0.2, 0.5]), *ordered[[0, 3, 10, 40, 90, -1]]]
    script = "a[1].map((eps) => { const c = dbscan(a[0], eps); return [c, meanGains(a[2], c), sizes(c)]; })"
    got = compute(browser, "helps", script, [distance.tolist(), radii, held["gains"]])
    seen = np.isfinite(gain[i, j])
    for radius, (cluster, means, sizes) in zip(radii, got, strict=True):
        expected = np.asarray(dbscan(distance, radius))
        assert cluster == expected.tolist() and sizes == sorted(np.bincount(expected).tolist(), reverse=True)
        same = expected[i] == expected[j]
        for some, mean in zip((same & seen, ~same & seen), means, strict=True):
            assert (mean is None) == (not some.any()) and (mean is None or abs(mean - gain[i, j][some].mean()) < 1e-4)
    limit = compute(browser, "helps", "joined(a)", distance.tolist())
    assert np.asarray(dbscan(distance, limit)).max() == 0 < np.asarray(dbscan(distance, limit - 1e-7)).max()


def test_the_chooser_orders_and_compares_as_the_library(browser):
    grid, data = SCOREBOARD["grid"], data_of(figures.chooser(SCOREBOARD).html)
    asked = [(kind, sums, most) for kind in grid for sums in (False, True) for most in (1e9, 55.0, 2.0)]
    answers = compute(browser, "chooser", "a[1].map((one) => ordered(JSON.parse(a[0]), ...one))", [data, asked])
    for (kind, sums, most), got in zip(asked, answers, strict=True):
        rows = {
            name: {seed: round(score, 4) for seed, score in row["accuracy"].items()}
            for name, row in grid[kind].items()
            if name not in CONTROLS
            and sum(np.mean(list(row[f"kB {way}"].values())) for way in ("down", "up")) <= most
            and (not sums or name in figures.SUMS_SUFFICE)
        }
        expected = sorted(rows, key=lambda n: -np.mean(list(rows[n].values())))
        undecided = [n for n in expected[1:] if compare(rows[expected[0]], rows[n])["verdict"] != "holds"]
        assert got == {"left": expected, "tied": undecided}, (kind, sums, most)


def test_the_names_of_the_chooser_stand_beside_its_picture_on_a_phone(show):
    page = show(figures.chooser(SCOREBOARD).html, width=390)
    names = "[...document.querySelectorAll('[data-method] text:first-child')].map((t) => t.getBBox().width)"
    axis = page.evaluate("document.querySelector('path.grid').getBBox().x")
    assert max(page.evaluate(names)) < axis + 2, "names run into the picture"


def test_the_scoreboard_has_every_row_and_its_winners_are_bold():
    table = figures.scoreboard(SCOREBOARD).html
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)
    shown = {figures._SHOWN.get(name, name): name for name in (*METHODS, *CONTROLS)}
    assert sorted(name for name, _ in rows) == sorted(shown)
    kinds = re.findall(r'<th scope="col"><span>(.*?)</span>', table)
    assert sorted(kinds) == sorted(SCOREBOARD["grid"])
    for j, kind in enumerate(kinds):
        scores = {name: row["accuracy"] for name, row in SCOREBOARD["grid"][kind].items()}
        choice = [name for name in scores if name not in CONTROLS]
        best = max(choice, key=lambda name: np.mean(list(scores[name].values())))
        expected = {m for m in choice if m == best or compare(scores[best], scores[m])["verdict"] != "holds"}
        cells = {shown[name]: re.findall(r"<td.*?>(.*?)</td>", row)[j] for name, row in rows}
        assert {name for name, cell in cells.items() if "<b>" in cell} == expected
        for name, cell in cells.items():
            found = f"{100 * np.mean(list(scores[name].values())):.0f}" if name in scores else "–"
            assert cell.removeprefix("<b>").removesuffix("</b>") == found


def test_who_needs_sums_only_is_what_the_atlas_says():
    text = (FIGURES.parent / "atlas.md").read_text("utf8").split("| method | the server sees |")[1]
    sees = {}
    for row in text.split("\n\n")[0].splitlines()[2:]:
        names, what = row.split("|")[1:3]
        sees |= dict.fromkeys(names.strip().split(", "), what.strip())
    other = {"alone": "LocalOnly", "FedAvg, fine-tuned": "FineTunedFedAvg", "SCAFFOLD": "Scaffold"}
    other |= {"LG-FedAvg": "LGFedAvg", "k-means": "ClusteredKMeans", "pFedGraph": "PFedGraph", OURS: "SplitHalfCFL"}
    for name in METHODS:
        alone = sees[other.get(name, name)]
        suffice = alone in ("nothing", "sums") or alone.startswith("sums of")
        assert (name in figures.SUMS_SUFFICE) == suffice, name


def test_the_teacher_has_the_stored_figures(show):
    page = show(figures.teachers_t().html)
    page.locator("select").select_option("digits, styles")
    page.get_by_label("4x4").check()
    for n, to in enumerate(("4", "1")):
        page.locator("input[type=range]").nth(n).fill(to)
    arm = TEACHERS["digits, styles, 4x4"]["rate 0.01, T = 100"]
    words = said(page).replace("\u2212", "-")
    for score in ("largest domain", "NMI"):
        mean, half = interval(list(arm[score].values()))
        assert f"{mean:.2f} ± {half:.2f}" in words
    shown = [g.get_attribute("data-run") for g in page.locator("[data-run]").all() if g.is_visible()]
    assert shown == ["digits, styles|4x4|0.01"]


def test_what_is_not_known_is_said(show, slider):
    page = show(slider)
    ranges = page.locator("input[type=range]")
    ranges.nth(0).fill(str(T))
    ranges.nth(1).fill("0.3")
    assert "not known" in said(page)
    ranges.nth(0).fill("3")
    assert "not known" not in said(page)
    page.get_by_role("button", name="Thresholds of the run").click()
    ranges.nth(0).fill(str(T))
    assert "not known" not in said(page)


def test_play(show, slider):
    page = show(slider)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => { const v = document.querySelector('input').value; return v > 3 && v < 50; }")
    page.get_by_role("button", name="Pause").click()

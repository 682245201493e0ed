"""What chapter 13 says of its stored runs."""

import statistics

from book.claiming import at

from tools.notebooks import ROOT

PAGE = "notebooks/13_scaling_out.ipynb"
SPEED, FLOWER = "scaling_out", "scaling_out_flower"
NAIVE, TUNED, PLAIN = "naive loop", "tuned loop", "plain vmap"
ANY, LAYERS = "fedlib, any module", "fedlib, own layers"
STACKS = (PLAIN, ANY, LAYERS)
PEERS = [f"../../benchmarks/results/{p.stem}" for p in (ROOT / "benchmarks/results").glob("*_peers.json")]
OURS = ("fedlib", "FLOP limit")


def gain(f, work, contender, against=NAIVE, which="median"):
    return at(f, "gains", work, against, contender, which)


def furthest_behind_on_w2(f):
    """The median ratio to fedlib's seconds of all on PyTorch is largest there, and FedJAX's is the smallest."""
    ratios = {}
    for row in f["rows"]:
        if row["contender"] not in OURS and row["against"]:
            median = statistics.median(cpu for _, cpu in row["against"]["fedlib"])
            ratios.setdefault(row["contender"], {})[row["work"]] = median
    jax = ratios.pop("FedJAX")
    return {"Flower", "pfl", "BlazeFL", "FedLab", NAIVE, TUNED} <= ratios.keys() and all(
        len(r) > 1 and min(r.values()) > 0 and max(r, key=r.get) == "W2" and jax["W2"] < r["W2"]
        for r in ratios.values()
    )


def stacks_alike(f):
    """About as many calls, and about as long; a loop makes many more."""
    calls, took = [f["calls"][c] for c in STACKS], [f["seconds"]["W2"][c] for c in STACKS]
    return (
        max(calls) < 1.2 * min(calls)
        and max(took) < 1.5 * min(took)
        and f["calls"][NAIVE] > f["calls"][TUNED] > 10 * max(calls)
    )


def chunk_rows(f, chunk):
    return sorted((row["clients"], row["ms a client"], row["MiB"]) for row in f["chunks"] if row["chunk"] == chunk)


def memory_grows_with_one_stack_only(f):
    return (
        all(mib < 16 for chunk in (10, 100) for _, _, mib in chunk_rows(f, chunk))
        and chunk_rows(f, "auto")[-1][2] > 50 * chunk_rows(f, "auto")[0][2] > 0
    )


def small_chunks_cost(f):
    """Ten a chunk are far slower than a hundred; more change little."""
    small, hundred, all_at_once = ([ms for _, ms, _ in chunk_rows(f, c)] for c in (10, 100, "auto"))
    most = list(zip(small, hundred, all_at_once, strict=True))[1:]
    return all(a > 2 * b and 0.5 < c / b < 1.6 for a, b, c in most)


def runs(f):
    """The runs in Flower of all algorithms."""
    return {(name, kind): run for name, kinds in f.items() for kind, run in kinds.items() if kind != "leaves a client"}


def same_parameters(f):
    found = runs(f)
    return len(found) == 9 and all(run["rounds"] == 6 and 0 <= run["parameters"] < 1e-5 for run in found.values())


def all_came_back(f):
    killed = [run for run in runs(f).values() if "killed" in run]
    return (
        len(killed) == 3
        and all(len(r["killed"]) == 3 and r["came back"] == r["killed"] for r in killed)
        and all(0 <= k < 8 for r in killed for k in r["killed"])
    )


CLAIMS = [
    (
        "The stack makes the large step, and plain `vmap` is enough for it: all three stacks make about as many calls "
        "and take about as long.",
        lambda read: stacks_alike(read(SPEED)) and min(gain(read(SPEED), "W2", c, which="lowest") for c in STACKS) > 10,
    ),
    (
        "Tuning the loop removes calls around the arithmetic, and that is all it can do.",
        lambda read: (
            1 < gain(read(SPEED), "W2", TUNED) < 2 and read(SPEED)["calls"][TUNED] < read(SPEED)["calls"][NAIVE]
        ),
    ),
    (
        "No bar comes near those of W2.",
        lambda read: (
            0 < max(gain(read(SPEED), w, c) for w in ("W1s", "W3") for c in STACKS) < gain(read(SPEED), "W2", PLAIN) / 4
        ),
    ),
    (
        "So plain `vmap` gains little on W1s, and on W3 it can lose badly.",
        lambda read: 0.9 < gain(read(SPEED), "W1s", PLAIN) < 1.3 and 0 < gain(read(SPEED), "W3", PLAIN) < 0.8,
    ),
    (
        "*fedlib, any module* does not follow plain vmap on W3",
        lambda read: 0 < gain(read(SPEED), "W3", PLAIN) < gain(read(SPEED), "W3", ANY),
    ),
    (
        "The time for a client does not grow with the number of clients: a round is linear.",
        lambda read: all(0 < v <= 1.3 for v in read(SPEED)["linear"].values()),
    ),
    (
        "so time falls as chunks grow, fast at first; beyond a hundred clients in a chunk it changes little",
        lambda read: small_chunks_cost(read(SPEED)),
    ),
    (
        "with a fixed chunk it hardly depends on the number of clients, with one stack for all it grows with them",
        lambda read: memory_grows_with_one_stack_only(read(SPEED)),
    ),
    (
        "with 0 Flower ended with exactly its parameters",
        lambda read: same_parameters(read(FLOWER)),
    ),
    ("All killed clients came back.", lambda read: all_came_back(read(FLOWER))),
    (
        "For the matrix the exponent comes out near the true 2, and the prediction near what was measured. For the "
        "sample it comes out far below the true 1",
        lambda read: (
            1.8 < at(read(SPEED), "quadratic", "similarity matrix and cut", "exponent") < 2.2
            and 0.7 < at(read(SPEED), "quadratic", "similarity matrix and cut", "measured / predicted") < 1.4
            and 0 < at(read(SPEED), "quadratic", "by a sample", "exponent") < 0.5
        ),
    ),
    (
        "Those on PyTorch are furthest behind on W2, where a loop is, too; there FedJAX, which compiles a step, is "
        "nearest.",
        lambda read: bool(PEERS) and all(furthest_behind_on_w2(read(name)) for name in PEERS),
    ),
    (
        "**Equal results** hold on any machine",
        lambda read: (
            0 < max(read(SPEED)["gaps"].values()) < 1e-10 and 0 <= at(read(SPEED), "processes", "difference") < 1e-12
        ),
    ),
    (
        "**Small networks on small clients** are where stacking pays most",
        lambda read: all(
            gain(read(SPEED), "W2", c) > 4 * gain(read(SPEED), w, c) > 0 for w in ("W1s", "W3") for c in STACKS
        ),
    ),
    (
        "**Convolutions** gain less on a CPU",
        lambda read: all(
            0 < 4 * gain(read(SPEED), w, c) < gain(read(SPEED), "W2", c) for w in ("W1s", "W3") for c in STACKS
        ),
    ),
]

GIVEN = [
    "6.6 million parameters",
]

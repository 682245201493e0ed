"""What chapter 16 says of its stored runs."""

import statistics

from book.claiming import at, shows

PAGE = "notebooks/16_scaling_out.ipynb"
SPEED, FLOWER = "scaling_out", "scaling_out_flower"
NAIVE, PLAIN, ANY = "naive loop", "plain vmap", "fedlib, any module"
PEERS = "../../benchmarks/results/intel-r-xeon-r-processor_peers"  # the run of which the page speaks
CARD = "../../benchmarks/results/nvidia-h200_gpu"  # the GPU of which it speaks
LIBRARIES = "Flower", "pfl", "BlazeFL", "FedLab", "FedJAX"
RELATIVE = "CFL, relative lengths"
WAYS = "HTTP", "HTTP, clients killed", "simulation"


def gain(read, work, contender, which="median"):
    return at(read(SPEED), "gains", work, NAIVE, contender, which)


def slower(read, work):
    """Seconds of other libraries over those of fedlib, for one work: medians of pairs."""
    found = {
        row["contender"]: statistics.median(cpu for _, cpu in row["against"]["fedlib"])
        for row in read(PEERS)["rows"]
        if row["work"] == work and row["contender"] in LIBRARIES
    }
    assert set(found) == set(LIBRARIES)
    return found


def beside_others(read):
    """As printed."""
    printed = {"Flower": "50", "FedLab": "21", "BlazeFL": "22", "pfl": "18", "FedJAX": "3.4"}
    return all(shows(slower(read, "W2")[name], text) for name, text in printed.items())


def with_lenet(read):
    found = slower(read, "W3").values()
    return shows(min(found), "1.8") and shows(max(found), "4.3")


def on_the_card(read):
    """A tuned loop over 1,000 clients beside one stack of them."""
    rounds = [row for row in read(CARD)["rows"] if row["part"] == "round" and row["clients"] == 1000]
    took = {row["work"]: row["ratio"] for row in rounds if row["way"] == "tuned loop"}
    return shows(took["W2"], "395") and shows(took["W3"], "17")


def runs(read):
    figures = read(FLOWER)
    return [(name, way, figures[name][way]) for name in ("FedAvg", "SCAFFOLD", RELATIVE) for way in WAYS]


def same_model(read):
    """To a few units of the seventh digit; CFL cut in the same rounds, in the same way, and did cut."""
    cfl = [run for name, _, run in runs(read) if name == RELATIVE]
    return all(run["rounds"] == 6 and 0 <= run["parameters"] < 5e-7 for *_, run in runs(read)) and all(
        run["same splits"] and run["splits"] for run in cfl
    )


def all_came_back(read):
    killed = [run for _, way, run in runs(read) if way == "HTTP, clients killed"]
    return all(
        len(set(run["killed"])) == 3 and run["came back"] == run["killed"] and 1 < run["in round"] < run["rounds"]
        for run in killed
    )


def leaves(read, name):
    """Bytes that a client sends, by kind: in sums, and in rows of its own."""
    found = {"sums": 0, "rows": 0}
    for row in read(FLOWER)[name]["leaves a client"]:
        kind = row["name"].split("/")[0]
        if kind in found:
            found[kind] += row["bytes"]
    return found


def chunks(read, chunk):
    """Of ten thousand clients."""
    (found,) = (r for r in read(SPEED)["chunks"] if r["chunk"] == chunk and r["clients"] == 10_000)
    return found


def memory(read):
    some, whole = chunks(read, 100), chunks(read, "auto")
    seconds = shows(some["seconds"], "2.6") and shows(whole["seconds"], "3.7")
    return 0 <= some["MiB"] < 16 and shows(whole["MiB"], "844") and seconds


def small_chunks_cost(read):
    """A thousand clients: chunks of a hundred are far faster than of ten, and one stack of all changes little."""
    took = {r["chunk"]: r["seconds"] for r in read(SPEED)["chunks"] if r["clients"] == 1000}
    return took[10] > 2 * took[100] and 0.5 < took["auto"] / took[100] < 1.5


CLAIMS = [
    (
        "a tuned loop took 395 times as long as fedlib on the small network and 17 times as long on LeNet-5",
        on_the_card,
    ),
    (
        "the stack by hand was 15 times as fast as the loop on the small network, but on LeNet-5 only 0.6 times as "
        "fast, that is, slower. Local training by fedlib alone was 17 and 1.5 times as fast.",
        lambda read: (
            shows(gain(read, "W2", PLAIN), "15")
            and shows(gain(read, "W3", PLAIN), "0.6")
            and gain(read, "W3", PLAIN, "highest") < 1
            and shows(gain(read, "W2", ANY), "17")
            and shows(gain(read, "W3", ANY), "1.5")
        ),
    ),
    (
        "With convolutions there is far less to gain than with the small network.",
        lambda read: all(0 < 4 * gain(read, "W3", c, "highest") < gain(read, "W2", c, "lowest") for c in (PLAIN, ANY)),
    ),
    (
        "chunks of a hundred needed less than 16 MiB beyond data and libraries and 2.6 seconds. One stack of all "
        "needed 844 MiB and was slower again, with 3.7 seconds.",
        memory,
    ),
    ("Most of the time is saved with a hundred clients in a chunk.", small_chunks_cost),
    (
        "Every client of FedAvg receives 9.6 kB, the 2,410 numbers of the network with four bytes each",
        lambda read: leaves(read, "FedAvg") == {"sums": 4 * 2410 + 4, "rows": 0} and shows(4 * 2.410, "9.6"),
    ),
    (
        "SCAFFOLD doubles both.",
        lambda read: leaves(read, "SCAFFOLD") == {"sums": 2 * 4 * 2410 + 4, "rows": 0},
    ),
    ("Only CFL looks at each client's update", lambda read: leaves(read, RELATIVE)["rows"] == 4 * 2410 + 16),
    (
        "**A real federation gives the same model**, except for rounding in the seventh digit after the point, "
        "and CFL's splits are also the same.",
        same_model,
    ),
    ("All killed clients came back, and nothing of the run was lost.", lambda read: all_came_back(read)),
    (
        "Flower's simulation took 50 times as long as `fit`, BlazeFL 22 times, FedLab 21 times, pfl 18 times, and "
        "FedJAX, which compiles a step, 3.4 times.",
        beside_others,
    ),
    ("With LeNet-5 the factors are between 1.8 and 4.3.", with_lenet),
]

GIVEN = []

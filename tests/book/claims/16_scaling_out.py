"""What chapter 16 says of its stored runs."""

from collections import Counter

from book.claiming import RELATIVE, at, claim, every, shows, times_as_long

PAGE = "notebooks/16_scaling_out.ipynb"
SPEED, FLOWER = "scaling_out", "scaling_out_flower"
LOOP, PLAIN, ANY = "naive loop", "plain vmap", "fedlib, any module"
CARD = "../../benchmarks/results/nvidia-h200_gpu"  # the GPU of which it speaks
LOOPS = "Flower", "BlazeFL", "FedLab", "pfl"
NETWORK = 4 * 2410  # bytes


def gains(read, work, which="median"):
    """Of the stack by hand and of fedlib, over the loop."""
    return [at(read(SPEED), "gains", work, LOOP, contender, which) for contender in (PLAIN, ANY)]


def gains_on_processors(read):
    printed = map(shows, [*gains(read, "W2"), *gains(read, "W3")], ("15", "17", "0.6", "1.5"))
    return all(printed) and gains(read, "W3", "highest")[0] < 1


def convolutions_gain_less(read):
    pairs = zip(gains(read, "W3", "highest"), gains(read, "W2", "lowest"), strict=True)
    return all(0 < 4 * convolutions < small for convolutions, small in pairs)


@claim
def slower(read, work, libraries, least, most):
    """Between how many times as long other libraries take for one work."""
    found = [times_as_long(read, work, name) for name in libraries]
    return shows(min(found), least) and shows(max(found), most)


def on_the_card(read):
    """A tuned loop over 1,000 clients beside one stack of them."""
    rounds = [row for row in read(CARD)["rows"] if row["part"] == "round" and row["clients"] == 1000]
    took = {row["work"]: row["ratio"] for row in rounds if row["way"] == "tuned loop"}
    return shows(took["W2"], "411") and shows(took["W3"], "18")


def same_model(read):
    """To a few units of the seventh digit; CFL cut in the same rounds, in the same way, and did cut."""
    ways = "HTTP", "HTTP, clients killed", "simulation"
    runs = [read(FLOWER)[name][way] for name in ("FedAvg", "SCAFFOLD", RELATIVE) for way in ways]
    cut = all(run["same splits"] and run["splits"] for run in runs[-3:])
    return cut and all(run["rounds"] == 6 and 0 <= run["parameters"] < 5e-7 for run in runs)


def all_came_back(read):
    killed = [read(FLOWER)[name]["HTTP, clients killed"] for name in ("FedAvg", "SCAFFOLD", RELATIVE)]
    return all(
        len(set(run["killed"])) == 3 and run["came back"] == run["killed"] and 1 < run["in round"] < run["rounds"]
        for run in killed
    )


@claim
def sends(read, name, **wanted):
    """Bytes that a client sends, by kind: in sums, and in rows of its own."""
    found = Counter()
    for leaf in read(FLOWER)[name]["leaves a client"]:
        found[leaf["name"].split("/")[0]] += leaf["bytes"]
    return {kind: found[kind] for kind in wanted} == wanted


def chunks(read, clients):
    return {row["chunk"]: row for row in read(SPEED)["chunks"] if row["clients"] == clients}


def memory(read):
    found = chunks(read, 10_000)
    printed = found[100]["seconds"], found["auto"]["seconds"], found["auto"]["MiB"]
    return 0 <= found[100]["MiB"] < 16 and all(map(shows, printed, ("2.6", "3.7", "844")))


def small_chunks_cost(read):
    """Chunks of a hundred are far faster than of ten, and one stack of all changes little."""
    took = {chunk: row["seconds"] for chunk, row in chunks(read, 1000).items()}
    return took[10] > 2 * took[100] and 0.5 < took["auto"] / took[100] < 1.5


CLAIMS = {
    "a tuned loop took 411 times as long as fedlib on the small network and 18 times as long on LeNet-5": on_the_card,
    "the stack by hand was 15 times as fast as the loop on the small network, but on LeNet-5 only 0.6 times as "
    "fast, that is, slower. fedlib's local training alone was 17 and 1.5 times as fast.": gains_on_processors,
    "With convolutions there is far less to gain than with the small network.": convolutions_gain_less,
    "chunks of a hundred needed less than 16 MiB beyond data and libraries and 2.6 seconds. One stack of all "
    "clients needed 844 MiB and was slower again, with 3.7 seconds.": memory,
    "Most of the time is saved with a hundred clients in a chunk.": small_chunks_cost,
    "Every client of FedAvg receives 9.6 kB, the 2,410 numbers of the network with four bytes each": sends(
        "FedAvg", sums=NETWORK + 4, rows=0
    ),
    "SCAFFOLD doubles both.": sends("SCAFFOLD", sums=2 * NETWORK + 4, rows=0),
    "Only CFL looks at each client's update": sends(RELATIVE, rows=NETWORK + 16),
    "**A real federation gives the same model**, except for rounding in the seventh digit after the point, "
    "and CFL's splits are also the same.": same_model,
    "All killed clients came back, and nothing was lost.": all_came_back,
    "Flower's simulation, BlazeFL, FedLab and pfl take 18 to 50 times as long as `fit`, and FedJAX, which compiles, "
    "3.4 times.": every(slower("W2", LOOPS, "18", "50"), slower("W2", ["FedJAX"], "3.4", "3.4")),
    "With LeNet-5 the factors are 1.8 to 4.3.": slower("W3", [*LOOPS, "FedJAX"], "1.8", "4.3"),
}

"""Time and memory of CFL's server work: the similarity of many clients' updates and the exact cut.

    python -m benchmarks.clustering [--clients 1000] [--parameters 100000] [--threads 2]

Prints seconds, and the memory that both took at most beside the updates themselves.
"""

import argparse
import resource
import time

import torch

from fedlib.server.clusters import bipartition, cosine_similarity


def peak() -> float:
    """Most memory that this process has held so far, in MiB (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Two groups of clients that pull apart, with noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--parameters", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(options.clients, options.parameters, generator=generator)
    pull = torch.randn(options.parameters, generator=generator)
    true = torch.arange(options.clients) % 2
    updates[true == 1] -= pull
    updates[true == 0] += pull
    bipartition(cosine_similarity(updates[:4, :100]))  # imports count as start-up
    before, start = peak(), time.perf_counter()
    similarity = cosine_similarity(updates)
    middle = time.perf_counter()
    found = bipartition(similarity)
    end = time.perf_counter()
    assert torch.equal(found.assignment, true)
    print(f"{options.clients} clients x {options.parameters} parameters, {options.threads} threads")
    print(f"similarity {middle - start:.2f} s, exact cut {end - middle:.2f} s, together {end - start:.2f} s")
    print(f"peak memory {peak():.0f} MiB, of which {peak() - before:.0f} MiB beyond the updates and the libraries")


if __name__ == "__main__":
    main()

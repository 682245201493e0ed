"""A rule that experiments compare CFL with: relative lengths against plain loops, and replays."""

import torch
from cfl_worlds import assert_ends, conflicting, recursion, weakest_cut
from reference import flat
from twins import LOCAL, fit, twin

from book.experiments.cfl_variants import RelativeCFL, replay

LENGTHS = {"eps1": 0.8, "eps2": 0.1, "rest": 3, "min_size": 2}


def test_relative_lengths_equal_the_recursion_in_plain_loops():
    params, clients, rest, least = twin("MLP")[0], conflicting(), LENGTHS["rest"], LENGTHS["min_size"]

    def parts_of(before, trained, mean, clients, t, begun):
        longest = max(float(flat(u).norm()) for u, _ in trained.values())
        pace = max(float(flat(u).norm()) / (LOCAL["lr"] * steps) for u, steps in trained.values())
        due = float(flat(mean).norm()) < LENGTHS["eps1"] * longest and pace >= LENGTHS["eps2"]
        if not due or t - (begun or 0) < rest or len(clients) == 1:
            return None, begun
        side = weakest_cut([flat(u) for u, _ in trained.values()])
        parts = [[k for k, s in enumerate(side) if s == part] for part in (0, 1)]
        return (parts, t) if min(map(len, parts)) >= least else (None, begun)

    algorithm, result = fit(RelativeCFL, clients, rounds=14, seed=3, **LENGTHS)
    assert 2 <= len(result.state.splits) <= 8
    assert_ends(algorithm, result.state, recursion(params, clients, 14, parts_of))


def test_replay_finds_the_first_decision_that_differs():
    def run(**thresholds):
        algorithm, result = fit(RelativeCFL, conflicting(), rounds=14, seed=0, **(LENGTHS | thresholds))
        return algorithm, result.state

    algorithm, state = run()
    rounds = [cut.round for cut in state.splits]
    assert len(rounds) >= 2 and replay(algorithm, state) is None
    settings = [{"eps1": e} for e in (0, 0.1, 0.2, 0.3, 0.5, 0.8)] + [{"eps2": e} for e in (0, 0.2, 0.4, 0.8, 9)]
    seen = set()
    for other in [*settings, {"rest": 1}, {"rest": 8}]:
        again, truth = run(**other)
        departs = replay(again, state)
        seen.add(departs is None)
        if departs is None:
            assert torch.equal(truth.norms, state.norms) and torch.equal(truth.assignment, state.assignment)
            assert [cut.round for cut in truth.splits] == rounds
        else:
            t, model, splits = departs
            before = truth.norms[:, 0] < t
            assert torch.equal(truth.norms[before], state.norms[state.norms[:, 0] < t])
            due = [state.norms[(state.norms[:, :2] == torch.tensor([t, model])).all(1), 5] for state in (truth, state)]
            assert due[0].tolist() == [splits] and due[1].tolist() == [not splits]
    assert seen == {True, False}
    often, state = run(eps1=2.0, eps2=0.0, min_size=1)  # split whenever the clusters have rested
    assert len(state.splits) > 4 and replay(often, state) is None

"""Break the code on purpose and see that the tests notice: ``make mutants``.

Each mutant is one small change that makes the library wrong. It is made in a copy of the project, in which the tests
that should notice are run. A mutant that survives is a test that cannot fail.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from .notebooks import ROOT

MUTANTS = [  # file, text, what breaks it, tests of which one at least must fail
    (
        "fedlib/federation.py",
        "data = data.to(device, dtype).sorted()",
        "data = data.to(device, dtype)",
        "tests/test_invariances.py::test_order_of_clients",
    ),
    (
        "fedlib/keys.py",
        "z = _scramble(start.to(ids.device) + (ids.long() + 1) * _GOLDEN)",
        "z = _scramble(start.to(ids.device) + (torch.arange(len(ids)) + 1) * _GOLDEN)",
        "tests/test_keys.py",
    ),
    (
        "fedlib/keys.py",
        "padding = torch.arange(size, device=ids.device) >= lengths[:, None]",
        "padding = torch.arange(size, device=ids.device) >= size + 0 * lengths[:, None]",
        "tests/test_invariances.py::test_length_of_padding",
    ),
    (
        "fedlib/data.py",
        "real = place < n[:, None, None]",
        "real = place < n_max",
        "tests/test_invariances.py::test_length_of_padding",
    ),
    (
        "fedlib/local.py",
        "mean_loss[here] = _train_chunk",
        "here = chunk.sort().values\n        mean_loss[here] = _train_chunk",
        "tests/test_invariances.py::test_chunk_size tests/algorithms",
    ),
    (
        "fedlib/local.py",
        "done[name][here[finished]] = p[finished]",
        "done[name][here] = p",
        "tests/test_invariances.py::test_chunk_size tests/algorithms",
    ),
    ("fedlib/local.py", "[_rows(e, here) for e in extras]", "list(extras)", "tests/test_local.py"),
    (
        "fedlib/local.py",
        "gradients = torch.autograd.grad(value.sum()",
        "gradients = torch.autograd.grad(value.mean()",
        "tests/test_invariances.py tests/algorithms",
    ),
    (
        "fedlib/algorithms/fedavg.py",
        "torch.zeros_like(clients), data.n, models=1",
        "torch.zeros_like(clients), data.n * 0 + 1, models=1",
        "tests/test_invariances.py::test_duplicate_client_counts_twice tests/algorithms",
    ),
    (
        "fedlib/aggregate.py",
        "matrix = member * weight.to(wide)",
        "matrix = member * weight.to(wide).sqrt()",
        "tests/test_invariances.py::test_duplicate_client_counts_twice tests/test_params.py",
    ),
    (
        "fedlib/local.py",
        "start = {name: p[here] for name, p in params.items()}",
        "start = {name: (p if len(here) == len(p) else p[here]) for name, p in params.items()}",
        "tests/test_invariances.py::test_inputs_are_not_modified",
    ),
    (
        "fedlib/data.py",
        "x = to_features(self.x[self.index.gather(1, position)], dtype)",
        "self.x.mul_(0.9); x = to_features(self.x[self.index.gather(1, position)], dtype)",
        "tests/test_invariances.py::test_inputs_are_not_modified",
    ),
    (
        "fedlib/params.py",
        "return stack.index_copy(0, index, values)",
        "return stack.index_copy_(0, index, values)",
        "tests/test_params.py tests/test_invariances.py",
    ),
    (
        "fedlib/params.py",
        "return stack.index_copy(0, index, values)",
        "return stack * 0 + values[:1]",
        "tests/test_invariances.py::test_unsampled_clients_keep_their_models",
    ),
    (
        "fedlib/layers.py",
        "z = F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=clients)",
        "z = F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=clients) * (1 + 1e-9)",
        "tests/test_layers.py tests/algorithms",
    ),
    (
        "fedlib/layers.py",
        "threshold_backward(g, inputs[i], 0)",
        "threshold_backward(g, inputs[i], 0.1)",
        "tests/test_layers.py",
    ),
    ("fedlib/layers.py", "g if more[i - 1] is None else g + more[i - 1]", "g", "tests/test_layers.py"),
    ("fedlib/layers.py", "if still_batched(args):", "if False:", "tests/test_layers.py"),
    ("fedlib/local.py", "if clients > 1 and _better_alone(", "if False and _better_alone(", "tests/test_local.py"),
    (
        "fedlib/federation.py",
        "sums=add_sums(found[0].sums, found[-1].sums)",
        "sums=found[-1].sums",
        "tests/test_invariances.py::test_chunk_size",
    ),
    ("fedlib/distributed.py", "_collect(dist.all_reduce, p)", "pass", "tests/test_distributed.py"),
    ("fedlib/distributed.py", "clients.tensor_split(world())[rank()]", "clients", "tests/test_distributed.py"),
    ("fedlib/evaluation.py", "masked_fill(~real, 0)", "masked_fill(~real, 1)", "tests/test_evaluation.py"),
    (
        "fedlib/evaluation.py",
        "return len(clients) == 1 or all(p.stride(0) == 0 for p in pair.values())",
        "return True",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/aggregate.py",
        "torch.where(shape(empty, p), p, (total[name] / shape(divisor, p)).to(p.dtype))",
        "(total[name] / shape(divisor, p)).to(p.dtype)",
        "tests/test_params.py",
    ),
    (
        "fedlib/data.py",
        "epoch, batch = step // per_epoch[:, None], step % per_epoch[:, None]",
        "epoch, batch = step * 0, step % per_epoch[:, None]",
        "tests/test_data.py tests/algorithms",
    ),
    ("fedlib/federation.py", "data.id[guilty[0]]", "data.id[guilty[0] * 0]", "tests/test_errors.py"),
    (
        "fedlib/federation.py",
        "if t % eval_every == 0 or t == rounds:",
        "if t % eval_every == 0:",
        "tests/test_federation.py",
    ),
    (
        "fedlib/evaluation.py",
        "found = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)",
        "found = torch.arange(len(wanted)) if wanted.isin(ids).all() else torch.searchsorted(ids, wanted).clamp(max=1)",
        "tests/test_federation.py tests/test_evaluation.py",
    ),
    (
        "fedlib/algorithms/local_only.py",
        "end = self.local_training(self.client_params(state, clients), data, key)",
        "end = self.local_training(self.client_params(state, 0 * clients), data, key)",
        "tests/algorithms",
    ),
    (
        "fedlib/evaluation.py",
        "to_features(data.x[r], dtype)",
        "data.x[r].to(dtype)",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/federation.py",
        "state = algorithm.prepare(algorithm.init(params, data, key), data, key)",
        "state = algorithm.init(params, data, key)",
        "tests/test_federation.py",
    ),
    (
        "fedlib/federation.py",
        "clients = algorithm.cohort(state, data.id, size, key).sort().values",
        "clients = algorithm.cohort(state, data.id, size, key)[:1].expand(size)",
        "tests/test_federation.py",
    ),
    (
        "fedlib/federation.py",
        "partial(self.optimizer, lr=self.lr), extras, frozen, self.chunk_size",
        "partial(self.optimizer, lr=self.lr), extras, (), self.chunk_size",
        "tests/test_federation.py",
    ),
    (
        "fedlib/federation.py",
        "moved = {name: p + 0.1 * Key(0).normal(one, name, *p.shape)[0].to(p) for name, p in params.items()}",
        "moved = params",
        "tests/test_errors.py",
    ),
    (
        "fedlib/algorithms/scaffold.py",
        "return (start[name] - p) / duration - state.c[name]",
        "return (start[name] - p) / duration",
        "tests/algorithms/test_heterogeneity_baselines.py",
    ),
    (
        "fedlib/algorithms/fedprox.py",
        "self.mu / 2 * distance",
        "self.mu * distance",
        "tests/algorithms/test_heterogeneity_baselines.py",
    ),
    (
        "fedlib/algorithms/fedopt.py",
        "* (v - square).sign()",
        "* (square - v).sign()",
        "tests/algorithms/test_heterogeneity_baselines.py",
    ),
    (
        "fedlib/evaluation.py",
        'scores["target_variance"] + (scores["target_mean"] - centre) ** 2',
        'scores["target_variance"]',
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/evaluation.py",
        "centre = torch.where(constant, first[:, 0].cpu().double(), centre)",
        "centre = 1 * centre",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/evaluation.py",
        "tenth = -(-len(values) // 10)",
        "tenth = len(values) // 10 or 1",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/evaluation.py",
        'scored = history.dropna(subset=[validation, test], how="all")',
        "scored = history.fillna(0)",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/evaluation.py",
        "== 0 and _one_model(algorithm, state, clients):",
        "== 0:",
        "tests/test_evaluation.py",
    ),
    (
        "fedlib/ledger.py",
        "return tree[0].numel() * tree.element_size()",
        "return tree.numel() * tree.element_size()",
        "tests/test_ledger.py",
    ),
    ("fedlib/ledger.py", "inner = ledger.total", "inner = 0 * ledger.total", "tests/test_ledger.py"),
    (
        "fedlib/federation.py",
        'key.uniform(data.id, "slow")',
        'key.uniform(torch.arange(len(data)), "slow")',
        "tests/test_federation.py",
    ),
    (
        "fedlib/federation.py",
        'key.uniform(data.id[clients], "drop-out")',
        'key.uniform(clients, "drop-out")',
        "tests/test_federation.py",
    ),
    (
        "fedlib/federation.py",
        "for t in range(done + 1, rounds + 1):",
        "for t in range(max(done, 1), rounds + 1):",
        "tests/test_checkpoint.py",
    ),
    (
        "fedlib/algorithms/local_only.py",
        "local = self.local_training(local, data, Key(key.seed, t)).params",
        "local = self.local_training(local, data, key).params",
        "tests/test_federation.py",
    ),
    (
        "fedlib/algorithms/scaffold.py",
        "torch.zeros_like(p).repeat_interleave(len(data), 0) for n, p in state.c.items()",
        "p.repeat_interleave(len(data), 0) for n, p in state.c.items()",
        "tests/test_federation.py",
    ),
    ("fedlib/checkpoint.py", "while name in arrays:", "while False:", "tests/test_checkpoint.py"),
    (
        "fedlib/checkpoint.py",
        'found = getattr(found, "__dict__", {}).get(part)',
        "found = getattr(found, part, None)",
        "tests/test_checkpoint.py",
    ),
    (
        "fedlib/checkpoint.py",
        'part = path.with_name(f"{path.name}.{os.getpid()}.part")',
        "part = path",
        "tests/test_checkpoint.py",
    ),
    (
        "fedlib/checkpoint.py",
        "save_state(self.path, state, meta)\n            self.written = time.monotonic()",
        "save_state(self.path, state, meta)",
        "tests/test_checkpoint.py::test_when_a_run_is_written",
    ),
    (
        "fedlib/identity.py",
        "_TOLERANCE = 1e-5",
        "_TOLERANCE = 1e5",
        "tests/test_checkpoint.py",
    ),
    (
        "fedlib/identity.py",
        "small = dataclasses.replace(data, index=data.index[:, :2], y=data.y[:, :2], n=data.n.clamp(max=2))",
        "return []",
        "tests/test_checkpoint.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "assignment[cut.members[cut.part == 1]] = new",
        "assignment[cut.part.nonzero()[:, 0]] = new",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "return length < self.eps1 and longest >= self.eps2",
        "return length < self.eps1 and longest > self.eps2",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "(torch.bincount(mine, minlength=m) == sizes) & (sizes >= 2)",
        "sizes >= 2",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "< state.since[state.assignment].clamp(max=self.memory)",
        "< self.memory",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "born[cut.model] = born[cut.new] = cut.round",
        "born[cut.new] = cut.round",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/algorithms/cfl.py",
        "goes_on = (assignment == cut.model) & (closeness[1] > closeness[0])",
        "goes_on = closeness[1] > closeness[0]",
        "tests/algorithms/test_cfl.py",
    ),
    (
        "fedlib/residual.py",
        'logits + params["prior"].log()',
        'logits + params["prior"]',
        "tests/test_residual.py::test_weights_by_hand",
    ),
    (
        "fedlib/residual.py",
        'if self.start == "random" else torch.zeros',
        'if self.start == "equal" else torch.zeros',
        "tests/test_residual.py::test_starts",
    ),
    (
        "fedlib/residual.py",
        'if self.shared or name.split(".")[0] not in self.layers}',
        "if True}",
        "tests/test_residual.py::test_names_and_shapes",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "(x, y[place], real), w_d[place])",
        "(x, y[place], real), w_d[: len(place)])",
        "tests/algorithms/test_fedcg.py::test_equals_the_paper",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "counts = target.sum(1) if self.by_count else",
        "counts = w_d.sum(1) if self.by_count else",
        "tests/algorithms/test_fedcg.py::test_equals_the_paper",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "state.prior[clients].log()[:, None]",
        "state.prior[: len(clients)].log()[:, None]",
        "tests/algorithms/test_fedcg.py::test_equals_the_paper",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "return state.found[clients], {}",
        "return state.found[: len(clients)], {}",
        "tests/algorithms/test_fedcg.py::test_equals_the_paper",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "bias = state.bias - (mean",
        "bias = -(mean",
        "tests/algorithms/test_fedcg.py::test_a_bias_spreads_the_samples",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "self.refresh > 0 and t % self.refresh == 0",
        "self.refresh > 0 and state.round % self.refresh == 0",
        "tests/algorithms/test_fedcg.py::test_the_teacher_becomes_the_student_after_so_many_rounds",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "and t >= self.warm_up",
        "and t > self.warm_up",
        "tests/algorithms/test_fedcg.py::test_adjacency_from_round_warm_up_on",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "lr=self.student_lr, optimizer=torch.optim.SGD)",
        "lr=self.student_lr)",
        "tests/algorithms/test_fedcg.py::test_only_the_network_has_the_optimizer_of_the_user",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        "softmax(-1) * _real(data)[..., None]",
        "softmax(-1)",
        "tests/algorithms/test_fedcg.py::test_new_clients_find_their_shares_with_a_perfect_student",
    ),
    (
        "fedlib/algorithms/fedcg.py",
        'purpose={"student": DOMAINS, "domains": DOMAINS, "graph": GRAPH}',
        'purpose={"student": DOMAINS, "domains": DOMAINS}',
        "tests/algorithms/test_fedcg.py::test_costs_by_purpose",
    ),
    (
        "fedlib/mmd.py",
        "w / w.sum().clamp_min(1e-30)",
        "w / len(w)",
        "tests/test_mmd.py::test_padding_changes_nothing",
    ),
    ("fedlib/mmd.py", "_median(d2.detach(), c2)", "_median(d2, c2)", "tests/test_mmd.py"),
    (
        "fedlib/tabular.py",
        "_moments(x[train[:, :, None], seen[:, None]])",
        "_moments(x[np.concatenate([train, further], 1)[:, :, None], seen[:, None]])",
        "tests/test_tabular.py::test_only_training_rows_decide_the_scaling",
    ),
    (
        "fedlib/algorithms/lg_fedavg.py",
        "self.mmd * (torch.stack(apart) * share).sum()",
        "self.mmd * torch.stack(apart).sum()",
        "tests/algorithms/test_lg_fedavg.py::test_equals_a_loop_over_clients_of_their_own_widths",
    ),
    (
        "fedlib/algorithms/lg_fedavg.py",
        "others &= torch.arange(others.shape[1], device=mine.device) != clients[:, None]",
        "pass",
        "tests/algorithms/test_lg_fedavg.py::test_equals_a_loop_over_clients_of_their_own_widths",
    ),
    (
        "fedlib/algorithms/lg_fedavg.py",
        "frozen=tuple(shared))",
        "frozen=())",
        "tests/algorithms/test_lg_fedavg.py::test_what_new_clients_are_given_by_hand",
    ),
    (
        "fedlib/transfer.py",
        "(federated - local[:, pairs]).mean(-1)",
        "(local[:, pairs] - federated).mean(-1)",
        "tests/test_transfer.py::test_helpful_and_harmful_pairs",
    ),
    (
        "fedlib/transfer.py",
        "validation = validation[evaluation.positions(validation.id, alone, ",
        "validation = validation[evaluation.positions(alone.id, alone, ",
        "tests/test_transfer.py::test_all_pairs_at_once_equal_one_after_another",
    ),
    ("fedlib/siamese.py", "signed = signed + signed.mT", "signed = 2 * signed", "tests/test_siamese.py"),
    ("fedlib/siamese.py", "both = [(a - b).abs(), a * b]", "both = [a - b, a * b]", "tests/test_siamese.py"),
    (
        "fedlib/algorithms/fedsgcnn.py",
        "known[s], check[s], self.pair_rounds",
        "known[s], known[s], self.pair_rounds",
        "tests/algorithms/test_fedsgcnn.py::test_equals_algorithm_1_step_by_step",
    ),
    (
        "fedlib/algorithms/fedsgcnn.py",
        "return super().prepare(state, data, key)",
        "return super().prepare(state, known, key)",
        "tests/algorithms/test_fedsgcnn.py::test_after_round_0_it_is_lg_fedavg",
    ),
    (
        "fedlib/algorithms/fedsgcnn.py",
        "labels[alone] = len(labels) + np.flatnonzero(alone)",
        "labels[alone] = len(labels)",
        "tests/algorithms/test_fedsgcnn.py::test_dbscan_by_hand",
    ),
    (
        "fedlib/flower.py",
        "**unflatten(sent), **(kept or {}))",
        "**unflatten(sent))",
        "tests/test_flower.py::test_equal_to_fit",
    ),
    (
        "fedlib/flower.py",
        "state.assignment[position : position + 1]",
        "state.assignment[:1]",
        "tests/test_flower.py::test_equal_to_fit",
    ),
    ("fedlib/flower.py", "(place,) = rows or {0}", "place = 0", "tests/test_flower.py::test_equal_to_fit"),
]


def survives(mutant: tuple[str, str, str, str]) -> bool:
    """Whether all tests pass although the code is broken."""
    file, text, broken, tests = mutant
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", "_build", ".git", "__pycache__"))
        path = copy / file
        path.write_text(path.read_text(encoding="utf8").replace(text, broken, 1), encoding="utf8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
        run = subprocess.run(
            command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, check=False
        )
        if run.returncode not in (0, 1):
            sys.exit(f"pytest could not run on {file}: {run.stdout.decode()[-2000:]}")
        return run.returncode == 0


def main() -> None:
    """Try every mutant; exit with 1 when one survives."""
    alive = [m for m in tqdm(MUTANTS, unit="mutant") if survives(m)]
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} mutants were noticed")
    for file, text, broken, _ in alive:
        print(f"survived in {file}: {text!r} -> {broken!r}")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()

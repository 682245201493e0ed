"""FedCG against its paper, written as plainly as it can be: client after client, sample after sample, in float64."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from twins import client_data, ragged_clients

import fedlib
from fedlib import Key
from fedlib.algorithms import FedAvg, FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.data import to_features
from fedlib.losses import cross_entropy
from fedlib.models import CNN, MLP
from fedlib.params import row
from fedlib.server.domain_graph import DomainGCN, adjacency, domain_adjacency, hamming
from fedlib.server.mixture import domain_bias, occupancy

D, SEED = 3, 7
SIZES, COHORT = (1, 2, 4, 6), 3
NETS = {
    "MLP": MLP((36, 3, 4)),
    "CNN": CNN((1, 6, 6), (2, 3), (4,), kernel=3, padding=1),
    "StridedCNN": CNN((1, 6, 6), (2, 3), (4,), 3, 1, pool=1, strides=(2, 1)),
}
LAYERS = {"MLP": ("dense1", "dense2"), "CNN": ("conv2", "dense1"), "StridedCNN": ("conv2",)}
CLASSIFIER = DomainClassifier((1, 6, 6), D, "flatten", (2, 3), (2, 1))
LOCAL = {"lr": 0.1, "student_lr": 0.2, "batch_size": 4, "epochs": 2}
pytestmark = pytest.mark.filterwarnings("ignore:the domains collapsed")  # as random teachers let them


def by_brightness(data, key):
    """A teacher: soft weights, by which third of the image is brightest."""
    thirds = to_features(data.x[data.index], torch.float64).mean((2, 3)).unflatten(-1, (3, 2)).mean(-1)
    real = torch.arange(data.index.shape[1]) < data.n[:, None]
    return (3 * thirds).softmax(-1) * real[..., None]


def small_data(sizes=SIZES, scale=3):
    """Ragged clients with contrast enough for a random teacher to know several domains."""
    return client_data({k: (scale * x, y) for k, (x, y) in ragged_clients(sizes).items()})


def make(kind="CNN", layers=None, classifier=CLASSIFIER, domains=D, residual=None, **settings):
    net = DomainNet(NETS[kind], domains, layers or LAYERS[kind], classifier, **(residual or {}))

    def loss(params, batch, w_d=None):
        return cross_entropy(net(params, batch[0], w_d), *batch[1:])

    return FedCG(loss, **{"net": net, "predict": net, **LOCAL, "warm_up": 1, **settings})


def start(algorithm, seed=0):
    return {n: p.double() for n, p in algorithm.net.init(seed).items()}


def run(algorithm, data, rounds=3, cohort=COHORT, **settings):
    params = settings.pop("params", None) or start(algorithm)
    return fedlib.fit(algorithm, params, data, rounds, cohort, seed=SEED, progress=False, **settings)


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def states(algorithm, data, rounds, cohort=COHORT):
    """The state after each round, with the first."""
    found = [algorithm.init(start(algorithm), data, Key(SEED))]
    run(algorithm, data, rounds, cohort, callbacks=[lambda t, state, entry: found.append(state)])
    return found


def tensors(state):
    parts = {"": {n: v for n, v in vars(state).items() if isinstance(v, torch.Tensor)}}
    parts |= {n: v for n, v in vars(state).items() if isinstance(v, dict)}
    return {f"{head}.{n}": p for head, part in parts.items() for n, p in part.items() if p.numel()}


# ---- the paper ----


def output(p, hat, x, w):
    """Eq. 4 for one sample."""

    def layer(name, f, z):
        out = f(z, p[f"{name}.weight"], p[f"{name}.bias"])
        for d in range(D if name in hat else 0):
            out = out + p[f"lam.{name}"] * w[d] * f(z, *hat[name][d])
        return out

    z = x[None]
    for name in ("conv1", "conv2"):
        if f"{name}.weight" in p:
            z = F.max_pool2d(layer(name, partial(F.conv2d, padding=1), z).relu(), 2)
    z = layer("dense1", F.linear, z.flatten(1))
    return (layer("dense2", F.linear, z.relu()) if "dense2.weight" in p else z)[0]


def connected(p, a, algorithm):
    """Eq. 5: each layer's modules are the rows of V; V-hat = sigma(A V W) is cut into weights and biases again."""
    hat = {}
    for name in algorithm.net.layers:
        weight, bias = p[f"V.{name}.weight"], p[f"V.{name}.bias"]
        v = torch.stack([torch.cat([weight[d].flatten(), bias[d]]) for d in range(D)])
        if algorithm.gcn is not None:
            v = a @ v @ p[f"W.{name}.W"] if f"W.{name}.W" in p else a @ v
            v = v.relu() if algorithm.gcn.relu else v
        cut = weight[0].numel()
        hat[name] = [(v[d, :cut].view(weight[d].shape), v[d, cut:]) for d in range(D)]
    return hat


def logits(phi, x):
    """The domain classifier for one sample."""
    z = F.conv2d(x[None], phi["conv1.weight"], phi["conv1.bias"], stride=2, padding=1).relu()
    z = F.conv2d(z, phi["conv2.weight"], phi["conv2.bias"], padding=1).relu()
    return F.linear(z.flatten(1), phi["dense1.weight"], phi["dense1.bias"])[0]


def distances(p, beta):
    """Eq. 6 and A below it; all layers' modules of a domain make one vector."""
    theta = [[x for n, v in p.items() if n[:2] == "V." for x in v[d].flatten().tolist()] for d in range(D)]
    a = torch.zeros(D, D, dtype=torch.float64)
    for i in range(D):
        h = {j: 1 / math.dist(theta[i], theta[j]) for j in range(D) if j != i}
        for j in range(D):
            a[i, j] = beta if i == j else (1 - beta) * h[j] / sum(h.values())
    return a


def descend(p, objective, steps, lr):
    """The loop of a textbook."""
    p = {n: v.clone().requires_grad_() for n, v in p.items()}
    for rows in steps:
        gradients = torch.autograd.grad(objective(p, rows), list(p.values()), allow_unused=True)
        with torch.no_grad():
            for v, g in zip(p.values(), gradients, strict=True):
                v -= lr * (0 if g is None else g)
    return {n: v.detach() for n, v in p.items()}


def mean(ends, weight, previous):
    total = sum(weight.values())
    return {n: sum(weight[k] / total * ends[k][n] for k in ends) if total else p for n, p in previous.items()}


def slow(algorithm, data, rounds, cohort=COHORT):
    """All clients' rounds; gives what the state of FedCG holds."""
    begin, one_hot = algorithm.init(start(algorithm), data, Key(SEED)), torch.eye(D, dtype=torch.float64)
    theta, student, teacher = (row(p, 0) for p in (begin.models | begin.graph, begin.student, begin.teacher))
    bias, a = torch.zeros(D, dtype=torch.float64), torch.eye(D, dtype=torch.float64)
    n = data.n.tolist()
    prior = [torch.ones(D, dtype=torch.float64) for _ in n]
    if callable(algorithm.teacher):
        w = algorithm.teacher(data, Key(SEED))
        share = sum(w[k, i] for k in range(len(n)) for i in range(n[k])) / sum(n)
        if algorithm.own_prior:
            prior = [(sum(w[k, : n[k]]) + D * share) / (n[k] + D) / share for k in range(len(n))]
    for t in range(1, rounds + 1):
        ends, pupils, targets, sizes, all_logits = {}, {}, {}, {}, []
        for k in Key(SEED, t).choose(data.id, cohort, "cohort").tolist():
            x, y = data.x[data.index[k, : n[k]]], data.y[k, : n[k]]
            if callable(algorithm.teacher):
                target = list(w[k, : n[k]])
            elif algorithm.teacher == "loss":
                hat = connected(theta, a, algorithm)
                losses = [[F.cross_entropy(output(theta, hat, x[i], e), y[i]) for e in one_hot] for i in range(n[k])]
                target = [one_hot[int(np.argmin(row))] for row in losses]
            else:
                all_logits += [logits(teacher, x[i]) + bias for i in range(n[k])]
                target = [one_hot[int(z.argmax())] for z in all_logits[-n[k] :]]
            w_d = target
            if algorithm.weights == "student":
                w_d = [(logits(student, x[i]).exp() * prior[k]) for i in range(n[k])]
                w_d = [p / p.sum() for p in w_d]
            if algorithm.weights == "hard":
                w_d = [one_hot[int(p.argmax())] for p in target]

            def task(p, rows):
                hat = connected(p, a, algorithm)
                return sum(F.cross_entropy(output(p, hat, x[i], w_d[i]), y[i]) for i in rows) / len(rows)

            def imitate(phi, rows):
                return -sum(target[i] @ logits(phi, x[i]).log_softmax(0) for i in rows) / len(rows)

            place, real = fedlib.local_batches(data[[k]], LOCAL["batch_size"], LOCAL["epochs"], Key(SEED, t)).plan()
            steps = [p[r].tolist() for p, r in zip(place[0], real[0], strict=True)]
            ends[k], pupils[k] = descend(theta, task, steps, 0.1), descend(student, imitate, steps, 0.2)
            targets[k], sizes[k] = sum(target), n[k]
        total = sum(targets.values())
        new = mean(ends, sizes, theta)
        for name in [n for n in new if n[:2] == "V." and algorithm.by_count]:
            each = [
                mean({k: {"": p[name][d]} for k, p in ends.items()}, {k: c[d] for k, c in targets.items()}, {"": v})
                for d, v in enumerate(theta[name])
            ]
            new[name] = torch.stack([v[""] for v in each])
        theta, student = new, mean(pupils, sizes, student)
        if t >= algorithm.warm_up:
            a = distances(theta, algorithm.beta)
        if algorithm.teacher == "centred":
            bias = bias - torch.stack(all_logits).mean(0)
        if algorithm.teacher == "sinkhorn":
            bias = bias - 0.1 * (torch.stack(all_logits) / 0.1).softmax(1).mean(0).log()
        bias = bias - bias.mean()
        if not callable(algorithm.teacher):
            share = total / sum(sizes.values())
            if algorithm.refresh and t % algorithm.refresh == 0:
                teacher, bias = student, torch.zeros_like(bias)
    return {"models": theta, "student": student, "teacher": teacher, "bias": bias, "adjacency": a, "share": share}


CASES = {
    "argmax, as the paper": ("CNN", {"refresh": 2}),
    "centred, by count": ("CNN", {"teacher": "centred", "by_count": True, "refresh": 2, "beta": 0.3}),
    "sinkhorn, no ReLU": ("MLP", {"teacher": "sinkhorn", "gcn": DomainGCN(relu=False)}),
    "loss": ("CNN", {"teacher": "loss", "by_count": True}),
    "no graph": ("CNN", {"gcn": None}),
    "no W": ("MLP", {"gcn": DomainGCN("none"), "warm_up": 2}),
    "weights of the student": ("CNN", {"teacher": by_brightness, "weights": "student"}),
    "without own priors": ("MLP", {"teacher": by_brightness, "weights": "student", "own_prior": False}),
    "soft, by count": ("CNN", {"teacher": by_brightness, "weights": "soft", "by_count": True}),
    "hard from soft": ("MLP", {"teacher": by_brightness}),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_paper(case):
    kind, settings = CASES[case]
    algorithm, data = make(kind, **settings), small_data()
    state = run(algorithm, data).state
    expected = slow(algorithm, data, 3)
    close(row(state.models | state.graph, 0), expected["models"])
    for name in ("student", "teacher"):
        close(row(getattr(state, name), 0), expected[name])
    for name in ("bias", "adjacency", "share"):
        close(getattr(state, name), expected[name])
    assert state.round == 3 and (expected["share"] > 0).sum() >= (1 if algorithm.teacher == "argmax" else 2)
    first = algorithm.init(start(algorithm), data, Key(SEED))
    for part in ("models", "graph", "student"):
        for name, p in getattr(first, part).items():
            assert not torch.equal(p, getattr(state, part)[name]), f"{name} did not move"


@pytest.mark.parametrize("teacher", ["argmax", "loss"])
def test_rows_go_through_a_network_in_parts(teacher, monkeypatch):
    data, algorithm = small_data(), make(teacher=teacher, epochs=1)
    whole = tensors(run(algorithm, data, rounds=1).state)
    monkeypatch.setattr("fedlib.algorithms.fedcg._ROWS", 4)
    close(tensors(run(algorithm, data, rounds=1).state), whole, 1e-12)


def test_only_the_network_has_the_optimizer_of_the_user():
    data = small_data()
    sgd, adam = (
        tensors(run(make(optimizer=o, epochs=1), data, rounds=1).state) for o in (torch.optim.SGD, torch.optim.Adam)
    )
    same = {n: torch.equal(sgd[n], adam[n]) for n in sgd}
    assert all(same[n] for n in same if n.startswith("student")) and not same["models.dense1.weight"]


# ---- what it reduces to ----


@pytest.mark.parametrize("gcn", [DomainGCN(), None], ids=["graph", "no graph"])
@pytest.mark.parametrize("kind", NETS)
def test_lambda_zero_is_fedavg_bit_for_bit(kind, gcn):
    frozen = tuple(f"lam.{layer}" for layer in LAYERS[kind])
    algorithm, data = make(kind, gcn=gcn, frozen=frozen, residual={"lam": 0}), small_data()
    params = algorithm.net.init(0)  # in 32 bits
    ours = run(algorithm, data, params=params).state.models
    shared = {n: p for n, p in params.items() if n.split(".")[0] not in ("V", "lam", "student")}
    plain = FedAvg(lambda p, b: cross_entropy(NETS[kind](p, b[0]), *b[1:]), lr=0.1, batch_size=4, epochs=2)
    theirs = run(plain, data, params=shared).state.models
    assert not torch.equal(theirs["dense1.weight"][0], shared["dense1.weight"])
    assert all(torch.equal(ours[n], p) for n, p in theirs.items())
    assert all((ours[n] == 0).all() for n in frozen)


@pytest.mark.parametrize("gcn", [DomainGCN(), None], ids=["graph", "no graph"])
@pytest.mark.parametrize("teacher", ["argmax", "sinkhorn", "loss", by_brightness])
def test_one_domain(teacher, gcn):
    """All samples have it, and it needs no other: A = 1."""
    classifier = replace(CLASSIFIER, domains=1)

    def share_of_one(data, key):
        return by_brightness(data, key).sum(-1, keepdim=True)

    teacher = share_of_one if callable(teacher) else teacher
    algorithm = make("MLP", domains=1, classifier=classifier, teacher=teacher, gcn=gcn, epochs=1)
    state = run(algorithm, small_data(), rounds=1).state
    assert state.adjacency.tolist() == [[1]] and state.share.tolist() == [1] and state.bias.tolist() == [0]
    close(state.prior, torch.ones_like(state.prior), 1e-12)


@pytest.mark.parametrize("layers", [("conv2", "dense1"), ("conv1", "conv2", "dense1")], ids=["some layers", "all"])
def test_one_domain_without_shared_layers_is_fedavg(layers):
    one = replace(CLASSIFIER, domains=1)
    algorithm = make("CNN", layers, one, domains=1, gcn=None, residual={"shared": False})
    data, params = small_data(), start(algorithm)
    ours = run(algorithm, data).state.models
    shared = {n: params[n] if n in params else params[f"V.{n}"][0] for n in NETS["CNN"].init(0)}
    plain = FedAvg(lambda p, b: cross_entropy(NETS["CNN"](p, b[0]), *b[1:]), lr=0.1, batch_size=4, epochs=2)
    theirs = run(plain, data, params=shared).state.models
    close({n: ours[n] if n in ours else ours[f"V.{n}"][0] for n in theirs}, theirs, 1e-12)


@pytest.mark.parametrize("settings", [{}, {"own_prior": False}, {"gcn": DomainGCN("low rank", rank=2)}, {"gcn": None}])
def test_the_graph_computed_beforehand_is_that_of_the_loss(settings):
    """The loss before the first step, which has the graph in it, is that of what clients hold for their answers."""
    algorithm, data = make(teacher=by_brightness, weights="student", **settings), small_data()
    state, everybody = run(algorithm, data, rounds=1).state, torch.arange(len(data))
    held = algorithm.client_params(state, everybody)
    assert not any(n.startswith("W.") for n in held) and set(held) - {"prior"} == set(start(algorithm))
    assert ("prior" in held) == settings.get("own_prior", True)
    first_step = replace(algorithm, lr=1e-300, batch_size=None, epochs=1)
    with_graph = first_step.train(state, data, everybody, Key(SEED, 4)).log["loss"]
    x, y, real = data.all_rows(torch.float64)
    for k in range(len(data)):
        close(with_graph[k], algorithm.loss(row(held, k), (x[k], y[k], real[k])), 1e-12)
    if algorithm.gcn is not None:
        v = {n: p[0] for n, p in state.models.items() if n.startswith("V.dense1")}
        w = {n.split(".")[-1]: p[0] for n, p in state.graph.items() if n.startswith("W.dense1")}
        hat = algorithm.gcn(w, v, state.adjacency)
        assert all(torch.equal(held[n][0], p) for n, p in hat.items()) and state.adjacency[0, 1] > 0


# ---- what changes nothing ----

RUNS = {
    "network": {"teacher": "centred", "refresh": 2, "by_count": True, "epochs": 1},
    "loss": {"kind": "MLP", "teacher": "loss", "epochs": 1},
    "function": {"kind": "MLP", "teacher": by_brightness, "weights": "student", "epochs": 1},
}


@pytest.mark.parametrize("case", RUNS)
def test_order_of_clients(case):
    data, algorithm = small_data(), make(**RUNS[case])
    a, b = (tensors(run(algorithm, some, rounds=2).state) for some in (data, data[[2, 0, 3, 1]]))
    assert all(torch.equal(p, b[n]) for n, p in a.items())


@pytest.mark.parametrize("case", RUNS)
def test_length_of_padding(case):
    data, algorithm = small_data(), make(**RUNS[case])
    a, b = (tensors(run(algorithm, some, rounds=2).state) for some in (data, longer(data)))
    n = data.index.shape[1]
    if ".found" in a:
        assert not b[".found"][:, n:].any()
        b[".found"] = b[".found"][:, :n]
    close(a, b, 1e-12)


def longer(data, extra=5):
    """With more padding, which holds rows and labels of other clients."""
    other = data.index[-1:, :1].expand(len(data), extra), data.y[-1:, :1].expand(len(data), extra)
    return replace(data, index=torch.cat([data.index, other[0]], 1), y=torch.cat([data.y, other[1]], 1))


@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("chunk_size", [1, 2])
def test_chunk_size(case, chunk_size):
    data = small_data()
    a, b = (tensors(run(make(**RUNS[case], chunk_size=c), data, rounds=1).state) for c in (chunk_size, len(data)))
    close(a, b, 1e-12)


@pytest.mark.parametrize("case", RUNS)
def test_resume(case, tmp_path):
    data, algorithm = small_data(), make(**RUNS[case])
    whole = tensors(run(algorithm, data, rounds=3).state)
    run(algorithm, data, rounds=2, checkpoint=fedlib.Checkpoint(tmp_path / "run"))
    resumed = tensors(run(algorithm, data, rounds=3, checkpoint=fedlib.Checkpoint(tmp_path / "run")).state)
    assert all(torch.equal(p, resumed[n]) for n, p in whole.items()) and len(whole) == len(resumed)
    with pytest.raises(ValueError, match=r"FedCG\.teacher"):
        run(replace(algorithm, teacher="sinkhorn"), data, rounds=3, checkpoint=fedlib.Checkpoint(tmp_path / "run"))


@pytest.mark.parametrize("case", RUNS)
def test_inputs_are_not_modified(case):
    data, algorithm = small_data(), make(**RUNS[case])
    params, columns = start(algorithm), copy.deepcopy(vars(data))
    result = run(algorithm, data, rounds=1, params=params, eval_data=data)
    state = copy.deepcopy(tensors(result.state))
    update = algorithm.train(result.state, data[:2], torch.arange(2), Key(0, 4))
    algorithm.aggregate(result.state, update)
    algorithm.new_clients(result.state, data[:2], Key(0), 1)
    fresh = start(algorithm)
    assert all(torch.equal(p, fresh[n]) and not p.requires_grad for n, p in params.items())
    assert all(torch.equal(getattr(data, n), value) for n, value in columns.items())
    assert all(torch.equal(state[n], p) for n, p in tensors(result.state).items())


# ---- a teacher that is a function ----


def test_clients_keep_what_the_teacher_said_and_their_prior():
    """Whether they are sampled or not. A prior says how often a client has a domain, as a multiple of its share."""
    data, algorithm = small_data((3, 8, 5, 4)), make("MLP", teacher=by_brightness, weights="student")
    result = run(algorithm, data[[2, 0, 3, 1]], rounds=2, cohort=1, eval_data=data)  # the teacher sees sorted clients
    w, state = by_brightness(data, None), result.state
    assert torch.equal(state.found, w)
    shares = w.sum((0, 1)) / 20
    close(state.share, shares, 1e-12)
    for k, n in enumerate((3, 8, 5, 4)):
        close(state.prior[k], (w[k].sum(0) + D * shares) / (n + D) / shares, 1e-12)
    held = algorithm.client_params(state, torch.tensor([3, 1]))
    assert torch.equal(held["prior"], state.prior[[3, 1]])
    right = [
        algorithm.net(row(algorithm.client_params(state, torch.tensor([k])), 0), data.x[data.index[k, :n]]).argmax(1)
        == data.y[k, :n]
        for k, n in enumerate((3, 8, 5, 4))
    ]
    assert result.history["test_accuracy"].iloc[-1] == pytest.approx(float(torch.cat(right).double().mean()))
    without = run(replace(algorithm, own_prior=False), data, rounds=1).state
    assert (without.prior == 1).all() and "prior" not in replace(algorithm, own_prior=False).client_params(
        without, torch.arange(2)
    )


def test_nobody_gets_a_domain_without_samples():
    """Its module never learned, however likely the student calls it."""

    def two_of_three(data, key):
        w = by_brightness(data, key)
        return torch.stack([w[..., 0], w[..., 1] + w[..., 2], 0 * w[..., 2]], -1)

    data, algorithm = small_data((8, 5, 4, 6)), make("MLP", teacher=two_of_three, weights="student")
    result = run(algorithm, data[:2], rounds=1, cohort=2)
    new = fedlib.new_clients(algorithm, result, data[2:])
    for state in (result.state, new.state):
        held = row(algorithm.client_params(state, torch.arange(2)), 1)
        w = algorithm.net.weights(held, data.x)
        assert state.share[2] == 0 and not w[:, 2].any() and (w[:, :2] > 0).all()


def test_weights_of_padding_count_nothing():
    def careless(data, key):
        return by_brightness(data, key).where(torch.arange(data.index.shape[1])[:, None] < data.n[:, None, None], 0.5)

    data = small_data()
    a, b = (tensors(run(make("MLP", teacher=t), data, rounds=1).state) for t in (by_brightness, careless))
    assert all(torch.equal(p, b[n]) for n, p in a.items())
    with pytest.raises(ValueError, match="0 or more, not NaN"):
        run(make(teacher=lambda data, key: -by_brightness(data, key)), data)


def test_the_teacher_is_asked_once_before_round_1():
    asked = []

    def teacher(data, key):
        asked.append((data.id.tolist(), key.seed, key.round))
        return by_brightness(data, key)

    data = small_data()
    run(make("MLP", teacher=teacher), data[[3, 1, 0, 2]], rounds=2)
    assert asked == [(data.id.tolist(), SEED, Key(SEED).round)]


def perfect(classes=D, gain=40.0):
    """Images with one bright channel, and a classifier whose logit is `gain` for that channel."""
    classifier = DomainClassifier((classes, 4, 4), classes, channels=(classes,), strides=(1,))
    params = {n: torch.zeros_like(p).double() for n, p in classifier.init(0).items()}
    for d in range(classes):
        params["conv1.weight"][d, d, 1, 1] = 1
        params["dense1.weight"][d, d] = gain
    return classifier, params


def colours(counts):
    """Clients with so many samples of each domain."""
    domains = [torch.repeat_interleave(torch.arange(D), torch.tensor(c)) for c in counts]
    xs = [F.one_hot(d, D).double()[:, :, None, None].expand(-1, -1, 4, 4) for d in domains]
    return fedlib.stack_clients(xs, [d * 0 for d in domains], ids=list(range(50, 50 + len(counts))))


def with_student(gain):
    """FedCG before round 1, with a student made by hand and shares of .5, .3 and .2."""
    classifier, student = perfect(gain=gain)
    net = DomainNet(MLP((48, 2)), D, ("dense1",), classifier)
    algorithm = FedCG(lambda p, b, w=None: cross_entropy(net(p, b[0], w), *b[1:]), net=net, teacher=by_brightness)
    state = algorithm.init({n: p.double() for n, p in net.init(0).items()}, colours([[1, 1, 1]]), Key(0))
    student = {n: p[None] for n, p in student.items()}
    return algorithm, replace(state, student=student, share=torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))


COUNTS = [[6, 0, 0], [1, 5, 4], [0, 1, 0]]


def test_new_clients_find_their_shares_with_a_perfect_student():
    algorithm, state = with_student(gain=40.0)
    for data in (colours(COUNTS), longer(colours(COUNTS))):
        found = algorithm.new_clients(state, data, Key(0), 1)
        expected = [[c + D * s for c, s in zip(counts, (0.5, 0.3, 0.2), strict=True)] for counts in COUNTS]
        expected = [[c / (sum(counts) + D) for c in row] for row, counts in zip(expected, COUNTS, strict=True)]
        close(found.prior, torch.tensor(expected, dtype=torch.float64) / state.share, 1e-9)
        assert found.found.shape == (3, 0, D)
        held = algorithm.client_params(found, torch.arange(3))
        assert torch.equal(held["prior"], found.prior)
    assert torch.equal(algorithm.client_params(found, torch.arange(3))["V.dense1.bias"][2], held["V.dense1.bias"][0])
    alone = replace(algorithm, own_prior=False).new_clients(state, colours(COUNTS), Key(0), 1)
    assert (alone.prior == 1).all()


def test_new_clients_with_an_unsure_student_take_steps_of_em():
    algorithm, state = with_student(gain=1.5)
    found = algorithm.new_clients(state, longer(colours(COUNTS)), Key(0), 1).prior
    for k, counts in enumerate(COUNTS):
        rows = [[math.exp(1.5 * (d == e)) for e in range(D)] for d in range(D) for _ in range(counts[d])]
        prior = [1.0] * D
        for _ in range(15):
            w = [[p * q for p, q in zip(r, prior, strict=True)] for r in rows]
            w = [[p / sum(r) for p in r] for r in w]
            shares = [(sum(r[d] for r in w) + D * float(state.share[d])) / (len(rows) + D) for d in range(D)]
            prior = [s / float(q) for s, q in zip(shares, state.share, strict=True)]
        close(found[k], torch.tensor(prior, dtype=torch.float64), 1e-10)


def test_enrolled_clients_are_evaluated():
    data, algorithm = small_data(), make("MLP", teacher=by_brightness, weights="student")
    result = run(algorithm, data[:2], rounds=1, cohort=2)
    new = fedlib.new_clients(algorithm, result, data[2:])
    assert new.state.prior.shape == (2, D) and new.ids.tolist() == data.id[2:].tolist()
    assert (new.state.prior - 1).abs().max() > 0.01
    scores = fedlib.evaluate(algorithm, new, data[2:])
    assert len(scores) == 2


# ---- teachers that are networks ----


def big():
    return small_data((30, 40, 50), scale=1)


POOLED = DomainClassifier((1, 6, 6), D, channels=(4, 4), strides=(2, 1))


def test_a_random_teacher_collapses():
    algorithm = make("MLP", classifier=POOLED, epochs=1, batch_size=None)
    with pytest.warns(UserWarning, match="collapsed"):
        state = run(algorithm, big(), rounds=1).state
    assert float(state.share.max()) > 0.95 and not state.bias.any()


@pytest.mark.filterwarnings("error")  # not even in round 1, when there is no bias yet
@pytest.mark.parametrize("teacher", ["centred", "sinkhorn"])
def test_a_bias_spreads_the_samples(teacher):
    """With the same clients in each round, the server takes the steps of `domain_bias`."""
    data, algorithm = big(), make("MLP", classifier=POOLED, teacher=teacher, epochs=1, batch_size=None)
    each = states(algorithm, data, 5)
    phi = row(each[0].teacher, 0)
    z = algorithm.net.classifier(phi, data.x[data.index.flatten()]).view(*data.index.shape, D)
    real = torch.arange(data.index.shape[1]) < data.n[:, None]
    bias = torch.zeros(D, dtype=torch.float64)
    for t in range(5):
        close(each[t].bias, bias, 1e-12)
        w = F.one_hot((z + bias).argmax(-1), D) * real[..., None]
        close(each[t + 1].share, w.sum((0, 1)) / real.sum().double(), 1e-12)
        if teacher == "centred":
            bias = domain_bias(z, real, "centred")
        else:
            bias = bias - 0.1 * ((z[real] + bias) / 0.1).softmax(1).mean(0).log()
            bias = bias - bias.mean()
    close(each[5].bias, domain_bias(z, real, teacher), 1e-3)
    assert float(each[1].share.max()) > 0.95
    assert occupancy(F.one_hot((z + each[5].bias).argmax(-1), D) * real[..., None])[1] > 0.9


@pytest.mark.parametrize("teacher", ["argmax", "centred"])
def test_the_teacher_becomes_the_student_after_so_many_rounds(teacher):
    each = states(make("MLP", teacher=teacher, refresh=2, epochs=1), small_data(), 5)
    for t in range(1, 6):
        source = each[t].student if t % 2 == 0 else each[t - 1].teacher
        assert all(torch.equal(p, source[n]) for n, p in each[t].teacher.items())
        assert bool(each[t].bias.any()) == (teacher == "centred" and t % 2 == 1)
        assert not any(torch.equal(p, each[t - 1].student[n]) for n, p in each[t].student.items())
    assert not any(torch.equal(p, each[0].student[n]) for n, p in each[0].teacher.items())
    other_seeds = make().init(start(make(), SEED + 1), small_data(), Key(SEED))
    assert not any(torch.equal(p, other_seeds.student[n]) for n, p in other_seeds.teacher.items())
    never = states(make("MLP", teacher=teacher, epochs=1), small_data(), 3)
    assert all(torch.equal(p, never[0].teacher[n]) for n, p in never[3].teacher.items())


# ---- adjacency ----


@pytest.mark.parametrize("first", ["eye", "uniform", "random"])
def test_adjacency_from_round_warm_up_on(first):
    each = states(make("MLP", warm_up=3, first=first, beta=0.4, epochs=1), small_data(), 5)
    for t, state in enumerate(each):
        v = {n: p[0] for n, p in state.models.items() if n[:2] == "V."}
        expected = domain_adjacency(v, 0.4) if t >= 3 else adjacency(first, D, 0.4, SEED)
        assert torch.equal(state.adjacency, expected)
    assert not torch.equal(each[3].adjacency, each[4].adjacency)


GIVEN = hamming([[0, 0, 0], [1, 0, 0], [1, 1, 1]], 0.3)


@pytest.mark.parametrize(
    "kind",
    ["eye", "uniform", "random", GIVEN, GIVEN.numpy(), GIVEN.tolist()],
    ids=["eye", "uniform", "random", "tensor", "array", "list"],
)
def test_other_adjacencies_stay(kind):
    algorithm = make("MLP", adjacency=kind, beta=0.4, epochs=1)
    expected = adjacency(kind, D, 0.4, SEED) if isinstance(kind, str) else GIVEN
    assert all(torch.equal(state.adjacency, expected) for state in states(algorithm, small_data(), 2))
    assert algorithm == replace(algorithm)


# ---- costs ----


def test_costs_by_purpose():
    """MLP((36, 2, 4)) with modules in its last layer, q = 12; the classifier has 20 + 57 + 84 = 161 numbers."""
    data, size = small_data(), 8
    shared, module, lam, classifier = 36 * 2 + 2 + 12, D * 12, 1, 161

    def costs(**settings):
        net = DomainNet(MLP((36, 2, 4)), D, ("dense2",), CLASSIFIER)
        algorithm = FedCG(lambda p, b, w=None: cross_entropy(net(p, b[0], w), *b[1:]), net=net, **settings)
        history = run(algorithm, data, rounds=2).history.iloc[-1]
        assert history["examples (domains)"] * 2 == history["examples"]
        found = []
        for way in ("down", "up"):
            parts = [history.get(f"bytes_{way} ({purpose})", 0) for purpose in ("domains", "graph")]
            found.append([n / (COHORT * size) for n in (history[f"bytes_{way}"] - sum(parts), *parts)])
        return found

    model, sums = shared + module + lam, shared + lam + 1 + module + D  # with how many examples, and of each domain
    down, up = costs(teacher="centred")
    assert down == [model, 2 * classifier + D, D * D + 12 * 12]
    assert up == [sums, classifier + 1 + D + D, 12 * 12 + 1]
    down, up = costs(teacher="loss", gcn=DomainGCN("none"))
    assert down == [model, classifier, D * D] and up == [sums, classifier + 1 + D, 0]
    down, up = costs(teacher=by_brightness, gcn=None)
    assert down == [model, classifier, 0] and up == [sums, classifier + 1, 0]


# ---- recipes and mistakes ----


def test_recipes():
    net = DomainNet(NETS["CNN"], D, ("conv2",), CLASSIFIER)
    paper = FedCG.recipe("paper", 40, loss=cross_entropy, net=net)
    assert (paper.teacher, paper.refresh, paper.warm_up, paper.student_lr) == ("argmax", 4, 4, 1e-4)
    assert (paper.weights, paper.own_prior, paper.adjacency, paper.first, paper.beta) == (
        "hard", False, "distance", "eye", 0.5)  # fmt: skip
    assert FedCG.recipe("paper", 3, loss=cross_entropy, net=net, beta=0.2, refresh=7) == replace(
        paper, refresh=7, warm_up=1, beta=0.2
    )
    book = FedCG.recipe("book", 40, loss=cross_entropy, net=net, teacher=by_brightness)
    assert book == FedCG(cross_entropy, net=net, teacher=by_brightness, weights="student")
    assert (book.warm_up, book.own_prior) == (20, True)
    with pytest.raises(ValueError, match="'paper' or 'book', got 'books'"):
        FedCG.recipe("books", 40, loss=cross_entropy, net=net)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"net": NETS["CNN"]}, "with a classifier, the student"),
        ({"net": DomainNet(NETS["CNN"], D, ("conv2",))}, "with a classifier, the student"),
        ({"teacher": "kmeans"}, "teacher must be a function or one of .*'kmeans'"),
        ({"weights": "one-hot"}, "weights must be .*'one-hot'"),
        ({"refresh": -1}, "refresh and warm_up must be 0 or more"),
        ({"warm_up": -1}, "refresh and warm_up must be 0 or more"),
        ({"student_lr": 0}, "student_lr positive"),
        ({"student_lr": float("nan")}, "student_lr positive"),
        ({"adjacency": "hamming"}, "must be 'eye', 'uniform' or 'random'; got 'hamming'"),
        ({"first": "distance"}, "must be 'eye', 'uniform' or 'random'; got 'distance'"),
        ({"adjacency": [[1.0]]}, r"adjacency must be 3 rows of 3 numbers; got \[\[1.0\]\]"),
        ({"adjacency": [[0.0, 1, 2], [1, 0, 3], [1, float("nan"), 0]]}, "adjacency must be 3 rows of 3 numbers"),
        ({"adjacency": [[0.0, 1, 0], [1, 0, 0], [1.5, -0.5, 0]]}, "weights of 0 or more that add up to 1"),
        ({"adjacency": [[0.0, 1, 2], [1, 0, 3], [1, 0, 0]]}, "weights of 0 or more that add up to 1"),
        ({"beta": 2}, "beta must be from 0 to 1; got 2"),
    ],
)
def test_mistakes_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong)


def test_mistakes_of_a_run_are_told():
    data = small_data()
    algorithm = make()
    for head in ("student.", "V."):
        params = {n: p for n, p in start(algorithm).items() if not n.startswith(head)}
        with pytest.raises(ValueError, match="params must be those of net.init"):
            algorithm.init(params, data, Key(0))
    with pytest.raises(ValueError, match=r"weights of shape \(4, 6, 3\); got \(4, 3\)"):
        run(make(teacher=lambda data, key: by_brightness(data, key).sum(1)), data)
    with pytest.raises(ValueError, match="must add up to 1 over the domains"):
        run(make(teacher=lambda data, key: 2 * by_brightness(data, key)), data)
    with pytest.raises(ValueError, match=r"frozen names \['lam.conv1'\] are no parameters"):
        run(make(frozen=("lam.conv1",)), data)

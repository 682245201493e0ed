"""FedCG against its paper, written as plainly as it can be: client after client, sample after sample, in float64."""

import copy
import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from twins import client_data, ragged_clients

import fedlib
from fedlib import Key
from fedlib.algorithms import FedAvg, FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet, part
from fedlib.extensions import FedCGKnownDomains
from fedlib.losses import cross_entropy
from fedlib.models import CNN, MLP
from fedlib.params import row
from fedlib.server.domain_graph import DomainGCN, domain_adjacency

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
pytestmark = [  # random teachers let domains collapse, and these runs are short
    pytest.mark.filterwarnings("ignore:the domains collapsed"),
    pytest.mark.filterwarnings("ignore:FedCG ended with round"),
]


def by_brightness(data, key):
    """A teacher: soft weights, by which third of the image is brightest."""
    thirds = data.features(data.index, torch.float64).mean((2, 3)).unflatten(-1, (3, 2)).mean(-1)
    real = torch.arange(data.index.shape[1]) < data.n[:, None]
    return (3 * thirds).softmax(-1) * real[..., None]


def small_data(sizes=SIZES, scale=3):
    """Ragged clients with contrast enough for a random teacher to know several domains."""
    return client_data({k: (scale * x, y) for k, (x, y) in ragged_clients(sizes).items()})


def make(network="CNN", kind=FedCG, layers=None, classifier=CLASSIFIER, domains=D, **settings):
    net = DomainNet(NETS[network], domains, layers or LAYERS[network], classifier)

    def loss(params, batch, w_d=None):
        return cross_entropy(net(params, batch[0], w_d), *batch[1:])

    return kind(loss, **{"net": net, "predict": net, **LOCAL, "warm_up": 1, **settings})


def known(network="MLP", **settings):
    return make(network, FedCGKnownDomains, **{"teacher": by_brightness, **settings})


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
    return {f"{head}.{n}": p for head, some in parts.items() for n, p in some.items() if p.numel()}


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
            if f"W.{name}.W" in p:
                v = (a @ v @ p[f"W.{name}.W"]).relu()
            else:
                v = (a @ (a @ v @ p[f"W.{name}.W1"]).relu() @ p[f"W.{name}.W2"]).relu()
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
    theta = row(begin.models | begin.modules | begin.graph, 0)
    student, teacher = (part(row(p, 0), "student") for p in (begin.student, begin.teacher))
    a, n = torch.eye(D, dtype=torch.float64), data.n.tolist()
    mended = isinstance(algorithm, FedCGKnownDomains)
    if mended:
        teacher = {}  # no network
        w = algorithm.teacher(data, Key(SEED))
        share = sum(w[k, i] for k in range(len(n)) for i in range(n[k])) / sum(n)
        prior = [(sum(w[k, : n[k]]) + D * share) / (n[k] + D) / share for k in range(len(n))]
    for t in range(1, rounds + 1):
        ends, pupils, targets, sizes = {}, {}, {}, {}
        for k in Key(SEED, t).choose(data.id, cohort, "cohort").tolist():
            x, y = data.x[data.index[k, : n[k]]], data.y[k, : n[k]]
            target = list(w[k, : n[k]]) if mended else [one_hot[int(logits(teacher, z).argmax())] for z in x]
            w_d = [one_hot[int(p.argmax())] for p in target]
            if mended and algorithm.weights == "student":
                w_d = [(logits(student, x[i]).exp() * prior[k]) for i in range(n[k])]
                w_d = [p / p.sum() for p in w_d]

            def task(p, rows):
                hat = connected(p, a, algorithm)
                return sum(F.cross_entropy(output(p, hat, x[i], w_d[i]), y[i]) for i in rows) / len(rows)

            def imitate(phi, rows):
                return -sum(target[i] @ logits(phi, x[i]).log_softmax(0) for i in rows) / len(rows)

            place, real = fedlib.local_batches(data[[k]], LOCAL["batch_size"], LOCAL["epochs"], Key(SEED, t)).plan()
            steps = [p[r].tolist() for p, r in zip(place[0], real[0], strict=True)]
            ends[k], pupils[k] = descend(theta, task, steps, 0.1), descend(student, imitate, steps, 0.2)
            targets[k], sizes[k] = sum(target), n[k]
        theta, student = mean(ends, sizes, theta), mean(pupils, sizes, student)
        a = distances(theta, algorithm.beta) if t >= algorithm.warm_up else a
        if not mended:
            share = sum(targets.values()) / sum(sizes.values())
            teacher = student if algorithm.refresh and t % algorithm.refresh == 0 else teacher
    return {"models": theta, "student": student, "teacher": teacher, "adjacency": a, "share": share}


CASES = {
    "as printed": make(refresh=2),
    "no graph, no new teacher": make(gcn=None, refresh=0),
    "bottleneck": make("MLP", gcn=DomainGCN("bottleneck", factor=4), warm_up=2, beta=0.3),
    "known domains": known(),
    "known domains, weights of the teacher": known("CNN", weights="teacher"),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_paper(case):
    algorithm, data = CASES[case], small_data()
    state = run(algorithm, data).state
    expected = slow(algorithm, data, 3)
    close(row(state.models | state.modules | state.graph, 0), expected["models"])
    for name in ("student", "teacher"):
        close(part(row(getattr(state, name), 0), "student"), expected[name])
    for name in ("adjacency", "share"):
        close(getattr(state, name), expected[name])
    assert state.round == 3 and not state.bias.any()
    first = algorithm.init(start(algorithm), data, Key(SEED))
    for field in ("models", "modules", "graph", "student"):
        for name, p in getattr(first, field).items():
            assert not torch.equal(p, getattr(state, field)[name]), f"{name} did not move"


def test_only_the_network_has_the_optimizer_of_the_user():
    data = small_data()
    sgd, adam = (
        tensors(run(make(optimizer=o, epochs=1), data, rounds=1).state) for o in (torch.optim.SGD, torch.optim.Adam)
    )
    same = {n: torch.equal(sgd[n], adam[n]) for n in sgd}
    assert all(same[n] for n in same if n.startswith("student")) and not same["models.dense1.weight"]


# ---- what it reduces to ----


@pytest.mark.parametrize(("network", "gcn"), [("MLP", DomainGCN()), ("CNN", None), ("StridedCNN", DomainGCN())])
def test_lambda_kept_at_zero_is_fedavg_bit_for_bit(network, gcn):
    class WithoutModules(FedCG):
        def task(self, params, batch, a):
            return super().task({n: 0 * p if n.startswith("lam.") else p for n, p in params.items()}, batch, a)

    algorithm, data = make(network, WithoutModules, gcn=gcn), small_data()
    params = algorithm.net.init(0)  # in 32 bits
    ours = run(algorithm, data, params=params).state.models
    shared = {n: p for n, p in params.items() if n.split(".")[0] not in ("V", "lam", "student")}
    plain = FedAvg(lambda p, b: cross_entropy(NETS[network](p, b[0]), *b[1:]), lr=0.1, batch_size=4, epochs=2)
    theirs = run(plain, data, params=shared).state.models
    assert not torch.equal(theirs["dense1.weight"][0], shared["dense1.weight"])
    assert all(torch.equal(ours[n], p) for n, p in theirs.items())


@pytest.mark.parametrize("gcn", [DomainGCN(), None], ids=["graph", "no graph"])
def test_one_domain(gcn):
    """All samples have it, and it needs no other: A = 1."""
    one = {"domains": 1, "classifier": DomainClassifier((1, 6, 6), 1, "flatten", (2, 3), (2, 1)), "gcn": gcn}
    mended = known(teacher=lambda data, key: by_brightness(data, key).sum(-1, keepdim=True), **one)
    for algorithm in (make("MLP", **one), mended):
        state = run(algorithm, small_data(), rounds=1).state
        assert state.adjacency.tolist() == [[1]] and state.share.tolist() == [1]
    close(state.prior, torch.ones_like(state.prior), 1e-12)


@pytest.mark.parametrize("gcn", [DomainGCN(), None], ids=["graph", "no graph"])
def test_the_graph_computed_beforehand_is_that_of_the_loss(gcn):
    """The loss before the first step, which has the graph in it, is that of what clients hold for their answers."""
    algorithm, data = known(gcn=gcn), small_data()
    state, everybody = run(algorithm, data, rounds=1).state, torch.arange(len(data))
    held = algorithm.client_params(state, everybody)
    assert set(held) == {"prior", *start(algorithm)}
    first_step = replace(algorithm, lr=1e-300, batch_size=None, epochs=1)
    with_graph = first_step.train(state, data, everybody, Key(SEED, 4)).log["loss"]
    x, y, real = data.all_rows(torch.float64)
    for k in range(len(data)):
        close(with_graph[k], algorithm.loss(row(held, k), (x[k], y[k], real[k])), 1e-12)
    assert gcn is None or state.adjacency[0, 1] > 0


# ---- what changes nothing ----

RUNS = {"as printed": make("CNN", refresh=2, epochs=1), "known domains": known(epochs=1)}


@pytest.mark.parametrize("case", RUNS)
def test_order_of_clients(case):
    data, algorithm = small_data(), RUNS[case]
    a, b = (tensors(run(algorithm, some, rounds=2).state) for some in (data, data[[2, 0, 3, 1]]))
    assert all(torch.equal(p, b[n]) for n, p in a.items())


@pytest.mark.parametrize("case", RUNS)
def test_length_of_padding(case):
    data, algorithm = small_data(), RUNS[case]
    a, b = (tensors(run(algorithm, some, rounds=2).state) for some in (data, longer(data)))
    n = data.index.shape[1]
    if ".domains" in a:
        assert not b[".domains"][:, n:].any()
        b[".domains"] = b[".domains"][:, :n]
    close(a, b, 1e-12)


def longer(data, extra=5):
    """With more padding, which holds rows and labels of other clients."""
    other = data.index[-1:, :1].expand(len(data), extra), data.y[-1:, :1].expand(len(data), extra)
    return replace(data, index=torch.cat([data.index, other[0]], 1), y=torch.cat([data.y, other[1]], 1))


@pytest.mark.parametrize("case", RUNS)
def test_chunk_size(case):
    data = small_data()
    a, b = (tensors(run(replace(RUNS[case], chunk_size=c), data, rounds=1).state) for c in (2, len(data)))
    close(a, b, 1e-12)


@pytest.mark.parametrize("case", RUNS)
def test_resume(case, tmp_path):
    data, algorithm = small_data(), RUNS[case]
    whole = tensors(run(algorithm, data, rounds=3).state)
    run(algorithm, data, rounds=2, checkpoint=fedlib.Checkpoint(tmp_path / "run"))
    resumed = tensors(run(algorithm, data, rounds=3, checkpoint=fedlib.Checkpoint(tmp_path / "run")).state)
    assert all(torch.equal(p, resumed[n]) for n, p in whole.items()) and len(whole) == len(resumed)
    with pytest.raises(ValueError, match=r"student_lr"):
        run(replace(algorithm, student_lr=3.0), data, rounds=3, checkpoint=fedlib.Checkpoint(tmp_path / "run"))


@pytest.mark.parametrize("case", RUNS)
def test_inputs_are_not_modified(case):
    data, algorithm = small_data(), RUNS[case]
    params, columns = start(algorithm), copy.deepcopy(vars(data))
    result = run(algorithm, data, rounds=1, params=params, eval_data=data)
    state = copy.deepcopy(tensors(result.state))
    update = algorithm.train(result.state, data[:2], torch.arange(2), Key(0, 4))
    algorithm.aggregate(result.state, update)
    algorithm.new_clients(result.state, data[:2], Key(0), 1)
    fresh = start(algorithm)
    assert all(torch.equal(p, fresh[n]) and not p.requires_grad for n, p in params.items())
    assert data.columns == columns.pop("columns") == {}
    kept = {n: value for n, value in columns.items() if isinstance(value, torch.Tensor)}
    assert len(kept) == 5 and all(torch.equal(getattr(data, n), value) for n, value in kept.items())
    assert all(torch.equal(state[n], p) for n, p in tensors(result.state).items())


# ---- a teacher that is a function ----


def test_clients_keep_what_the_teacher_said_and_their_prior():
    """Whether they are sampled or not. A prior says how often a client has a domain, as a multiple of its share."""
    data, algorithm = small_data((3, 8, 5, 4)), known()
    result = run(algorithm, data[[2, 0, 3, 1]], rounds=2, cohort=1, eval_data=data)  # the teacher sees sorted clients
    w, state = by_brightness(data, None), result.state
    assert torch.equal(state.domains, w)
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


def test_nobody_gets_a_domain_without_samples():
    """Its module never learned, however likely the student calls it."""

    def two_of_three(data, key):
        w = by_brightness(data, key)
        return torch.stack([w[..., 0], w[..., 1] + w[..., 2], 0 * w[..., 2]], -1)

    data, algorithm = small_data((8, 5, 4, 6)), known(teacher=two_of_three)
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
    a, b = (tensors(run(known(teacher=t), data, rounds=1).state) for t in (by_brightness, careless))
    assert all(torch.equal(p, b[n]) for n, p in a.items())


def test_the_teacher_is_asked_once_before_round_1():
    asked = []

    def teacher(data, key):
        asked.append((data.id.tolist(), key.seed, key.round))
        return by_brightness(data, key)

    data = small_data()
    run(known(teacher=teacher), data[[3, 1, 0, 2]], rounds=2)
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
    """A state before round 1, with a student made by hand and shares of .5, .3 and .2."""
    classifier, student = perfect(gain=gain)
    net, data = DomainNet(MLP((48, 2)), D, ("dense1",), classifier), colours([[5, 3, 2]])
    truth = F.one_hot(torch.tensor([[0] * 5 + [1] * 3 + [2] * 2]), D).double()
    algorithm = FedCGKnownDomains(
        lambda p, b, w=None: cross_entropy(net(p, b[0], w), *b[1:]), net=net, teacher=lambda data, key: truth
    )
    first = algorithm.init({n: p.double() for n, p in net.init(0).items()}, data, Key(0))
    state = algorithm.prepare(first, data, Key(0))
    close(state.share, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    return algorithm, replace(state, student={f"student.{n}": p[None] for n, p in student.items()})


COUNTS = [[6, 0, 0], [1, 5, 4], [0, 1, 0]]


def test_new_clients_find_their_shares_with_a_perfect_student():
    algorithm, state = with_student(gain=40.0)
    for data in (colours(COUNTS), longer(colours(COUNTS))):
        found = algorithm.new_clients(state, data, Key(0), 1)
        expected = [[c + D * s for c, s in zip(counts, (0.5, 0.3, 0.2), strict=True)] for counts in COUNTS]
        expected = [[c / (sum(counts) + D) for c in row] for row, counts in zip(expected, COUNTS, strict=True)]
        close(found.prior, torch.tensor(expected, dtype=torch.float64) / state.share, 1e-9)
        assert found.domains.shape == (3, 0, D)
        held = algorithm.client_params(found, torch.arange(3))
        assert torch.equal(held["prior"], found.prior)
    assert torch.equal(algorithm.client_params(found, torch.arange(3))["V.dense1.bias"][2], held["V.dense1.bias"][0])


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
    data, algorithm = small_data(), known()
    result = run(algorithm, data[:2], rounds=1, cohort=2)
    new = fedlib.new_clients(algorithm, result, data[2:])
    assert new.state.prior.shape == (2, D) and new.ids.tolist() == data.id[2:].tolist()
    assert (new.state.prior - 1).abs().max() > 0.01
    scores = fedlib.evaluate(algorithm, new, data[2:])
    assert len(scores) == 2


# ---- a teacher that is a network ----


def test_a_random_teacher_collapses():
    pooled = DomainClassifier((1, 6, 6), D, channels=(4, 4), strides=(2, 1))
    algorithm = make("MLP", classifier=pooled, epochs=1, batch_size=None)
    with pytest.warns(UserWarning, match="collapsed"):
        state = run(algorithm, small_data((30, 40, 50), scale=1), rounds=1).state
    assert float(state.share.max()) > 0.95


def test_the_teacher_becomes_the_student_after_so_many_rounds():
    each = states(make("MLP", refresh=2, epochs=1), small_data(), 5)
    for t in range(1, 6):
        source = each[t].student if t % 2 == 0 else each[t - 1].teacher
        assert all(torch.equal(p, source[n]) for n, p in each[t].teacher.items())
        assert not any(torch.equal(p, each[t - 1].student[n]) for n, p in each[t].student.items())
    assert not any(torch.equal(p, each[0].student[n]) for n, p in each[0].teacher.items())
    other_seeds = make("MLP").init(start(make("MLP"), SEED + 1), small_data(), Key(SEED))
    assert not any(torch.equal(p, other_seeds.student[n]) for n, p in other_seeds.teacher.items())


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (make, {"warm_up": 4}, ["A stayed the identity (warm_up=4)", "taught alone (refresh=10)"]),
        (make, {"warm_up": 3, "refresh": 3}, ["taught alone (refresh=3)"]),  # the second one teaches nobody any more
        (make, {"warm_up": 4, "refresh": 2}, ["A stayed the identity (warm_up=4)"]),
        (make, {"warm_up": 3, "refresh": 2}, []),
        (make, {"warm_up": 4, "refresh": 0, "gcn": None}, []),  # never on purpose
        (make, {"warm_up": 4, "refresh": 0, "beta": 1}, []),
        (known, {"warm_up": 4}, ["A stayed the identity (warm_up=4)"]),
        (known, {"warm_up": 3}, []),
    ],
)
def test_a_run_too_short_for_its_settings_says_so(make, settings, said):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(make("MLP", epochs=1, **settings), small_data())
    (words,) = [str(w.message) for w in found if "FedCG ended with round 3" in str(w.message)] or [""]
    assert bool(words) == bool(said) and all(part in words for part in said)
    assert words.count("=") == len(said)


def test_adjacency_from_round_warm_up_on():
    each = states(make("MLP", warm_up=3, beta=0.4, epochs=1), small_data(), 5)
    for t, state in enumerate(each):
        assert torch.equal(
            state.adjacency, domain_adjacency(row(state.modules, 0), 0.4) if t >= 3 else torch.eye(D).double()
        )
    assert not torch.equal(each[3].adjacency, each[4].adjacency)


# ---- costs ----


def test_costs_by_purpose():
    """MLP((36, 2, 4)) with modules in its last layer, q = 12; the classifier has 20 + 57 + 84 = 161 numbers."""
    data, size = small_data(), 8
    shared, module, lam, classifier = 36 * 2 + 2 + 12, D * 12, 1, 161

    def costs(kind, **settings):
        net = DomainNet(MLP((36, 2, 4)), D, ("dense2",), CLASSIFIER)
        algorithm = kind(lambda p, b, w=None: cross_entropy(net(p, b[0], w), *b[1:]), net=net, **settings)
        history = run(algorithm, data, rounds=2).history.iloc[-1]
        assert history["examples (domains)"] * 2 == history["examples"]
        found = []
        for way in ("down", "up"):
            parts = [history.get(f"bytes_{way} ({purpose})", 0) for purpose in ("domains", "graph")]
            found.append([n / (COHORT * size) for n in (history[f"bytes_{way}"] - sum(parts), *parts)])
        return found

    model, sums = shared + module + lam, shared + lam + 1 + module + D  # with how many examples, and of each domain
    down, up = costs(FedCG)
    assert down == [model, 2 * classifier + D, D * D + 12 * 12]
    assert up == [sums, classifier + 1 + D, 12 * 12 + 1]
    down, up = costs(FedCGKnownDomains, teacher=by_brightness, gcn=None)
    assert down == [model, classifier, 0] and up == [sums, classifier + 1, 0]


# ---- mistakes ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beta": 2}, "beta must be a number of at least 0 and at most 1; got 2"),
        (
            {"kind": FedCGKnownDomains, "teacher": by_brightness, "weights": "soft"},
            "'student' or 'teacher'; got 'soft'",
        ),
    ],
)
def test_mistakes_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong)


def test_a_network_without_a_student_is_refused():
    with pytest.raises(ValueError, match="FedCG needs one"):
        run(make(classifier=None), small_data(), rounds=1)


@pytest.mark.parametrize("change", [lambda w: w.sum(1), lambda w: 2 * w, lambda w: w * torch.nan])
def test_teachers_that_are_refused(change):
    with pytest.raises(ValueError, match=r"must give weights \(4, 6, 3\) that add up to 1 for each sample"):
        run(known(teacher=lambda data, key: change(by_brightness(data, key))), small_data())

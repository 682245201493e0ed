"""FedCG against its paper, written as plainly as it can be: client after client, sample after sample, in float64."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from reference import batches, cohort, flat, mean_by_examples
from twins import assert_resumes, assert_same, client_data, close, ragged_clients

import fedlib
from fedlib import Key
from fedlib.algorithms import FedAvg, FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet, part
from fedlib.extensions import FedCGKnownDomains
from fedlib.losses import cross_entropy
from fedlib.models import CNN, MLP
from fedlib.params import row
from fedlib.server.domain_graph import DomainGCN

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


def run(algorithm, data, rounds=3, size=COHORT, params=None, **settings):
    params = params or start(algorithm)
    return fedlib.fit(algorithm, params, data, rounds, size, seed=SEED, progress=False, **settings)


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
    theta = [flat({n: v[d] for n, v in p.items() if n[:2] == "V."}).tolist() for d in range(D)]
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


def slow(algorithm, data, rounds, size=COHORT):
    """All clients' rounds; gives what the state of FedCG holds."""
    begin, one_hot = algorithm.init(start(algorithm), data, Key(SEED)), torch.eye(D, dtype=torch.float64)
    theta = row(begin.models | begin.modules | begin.graph, 0)
    student, teacher = (part(row(p, 0), "student") for p in (begin.student, begin.teacher))
    a, n, found = torch.eye(D, dtype=torch.float64), data.n.tolist(), {}
    clients = {i: (data.x[data.index[k, : n[k]]], data.y[k, : n[k]]) for k, i in enumerate(data.id.tolist())}
    mended = isinstance(algorithm, FedCGKnownDomains)
    if mended:
        teacher = {}  # no network
        w = algorithm.teacher(data, Key(SEED))
        share = sum(w[k, i] for k in range(len(n)) for i in range(n[k])) / sum(n)
        prior = [(sum(w[k, : n[k]]) + D * share) / (n[k] + D) / share for k in range(len(n))]
        found = {"domains": w, "prior": torch.stack(prior)}
    for t in range(1, rounds + 1):
        key, ends, pupils, targets = Key(SEED, t), {}, {}, []
        for i in cohort(clients, size, key):
            (x, y), k = clients[i], list(clients).index(i)
            target = list(w[k, : n[k]]) if mended else [one_hot[int(logits(teacher, z).argmax())] for z in x]
            w_d = [one_hot[int(p.argmax())] for p in target]
            if mended and algorithm.weights == "student":
                w_d = [(logits(student, z).exp() * prior[k]) for z in x]
                w_d = [p / p.sum() for p in w_d]

            def task(p, rows):
                hat = connected(p, a, algorithm)
                return sum(F.cross_entropy(output(p, hat, x[i], w_d[i]), y[i]) for i in rows) / len(rows)

            def imitate(phi, rows):
                return -sum(target[i] @ logits(phi, x[i]).log_softmax(0) for i in rows) / len(rows)

            steps = batches(i, n[k], key, batch_size=LOCAL["batch_size"], epochs=LOCAL["epochs"])
            ends[i], pupils[i] = descend(theta, task, steps, 0.1), descend(student, imitate, steps, 0.2)
            targets += target
        theta, student = mean_by_examples(ends, clients), mean_by_examples(pupils, clients)
        a = distances(theta, algorithm.beta) if t >= algorithm.warm_up else a
        if not mended:
            share = sum(targets) / len(targets)
            teacher = student if algorithm.refresh and t % algorithm.refresh == 0 else teacher
    return found | {"models": theta, "student": student, "teacher": teacher, "adjacency": a, "share": share}


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
    close(row(state.models | state.modules | state.graph, 0), expected.pop("models"))
    for name in ("student", "teacher"):
        close(part(row(getattr(state, name), 0), "student"), expected.pop(name))
    for name, value in expected.items():
        close(getattr(state, name), value)
    assert state.round == 3 and not state.bias.any()
    first = algorithm.init(start(algorithm), data, Key(SEED))
    for field in ("models", "modules", "graph", "student"):
        for name, p in getattr(first, field).items():
            assert not torch.equal(p, getattr(state, field)[name]), f"{name} did not move"


def test_only_the_network_has_the_optimizer_of_the_user():
    sgd, adam = (
        run(make(optimizer=o, epochs=1), small_data(), rounds=1).state for o in (torch.optim.SGD, torch.optim.Adam)
    )
    close(sgd.student, adam.student, 0)
    assert not torch.equal(sgd.models["dense1.weight"], adam.models["dense1.weight"])


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


@pytest.mark.parametrize("algorithm", [make(refresh=2, epochs=1), known(epochs=1)], ids=["as printed", "known domains"])
def test_a_resumed_run_is_the_uninterrupted_one(algorithm, tmp_path):
    assert_resumes(lambda rounds, **settings: run(algorithm, small_data(), rounds, **settings), tmp_path, 2, 3)


# ---- a teacher that is a function ----


def test_nobody_gets_a_domain_without_samples():
    """Its module never learned, however likely the student calls it."""

    def two_of_three(data, key):
        w = by_brightness(data, key)
        return torch.stack([w[..., 0], w[..., 1] + w[..., 2], 0 * w[..., 2]], -1)

    data, algorithm = small_data((8, 5, 4, 6)), known(teacher=two_of_three)
    result = run(algorithm, data[:2], rounds=1, size=2)
    new = fedlib.new_clients(algorithm, result, data[2:])
    for state in (result.state, new.state):
        held = row(algorithm.client_params(state, torch.arange(2)), 1)
        w = algorithm.net.weights(held, data.x)
        assert state.share[2] == 0 and not w[:, 2].any() and (w[:, :2] > 0).all()


def test_weights_of_padding_count_nothing():
    def careless(data, key):
        return by_brightness(data, key).where(torch.arange(data.index.shape[1])[:, None] < data.n[:, None, None], 0.5)

    assert_same(*(run(known(teacher=t), small_data(), rounds=1).state for t in (by_brightness, careless)))


def test_the_teacher_is_asked_once_before_round_1():
    asked = []

    def teacher(data, key):
        asked.append((data.id.tolist(), key.seed, key.round))
        return by_brightness(data, key)

    data = small_data()
    run(known(teacher=teacher), data[[3, 1, 0, 2]], rounds=2)
    assert asked == [(data.id.tolist(), SEED, Key(SEED).round)]


def colours(counts):
    """Clients with so many samples of each domain, which is the bright channel of an image."""
    domains = [torch.repeat_interleave(torch.arange(D), torch.tensor(c)) for c in counts]
    xs = [F.one_hot(d, D).double()[:, :, None, None].expand(-1, -1, 4, 4) for d in domains]
    return fedlib.stack_clients(xs, [d * 0 for d in domains], ids=list(range(50, 50 + len(counts))))


def longer(data, extra=5):
    """With more padding, which holds rows and labels of other clients."""
    index, y = (torch.cat([p, p[-1:, :1].expand(len(data), extra)], 1) for p in (data.index, data.y))
    return replace(data, index=index, y=y)


def with_student(gain):
    """A state before round 1, with a student whose logit is `gain` for the bright channel, and shares of .5, .3, .2."""
    classifier = DomainClassifier((D, 4, 4), D, channels=(D,), strides=(1,))
    student = {n: torch.zeros_like(p).double() for n, p in classifier.init(0).items()}
    for d in range(D):
        student["conv1.weight"][d, d, 1, 1] = 1
        student["dense1.weight"][d, d] = gain
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


@pytest.mark.parametrize("gain", [1.5, 40.0], ids=["an unsure student", "a perfect one"])
def test_new_clients_find_their_shares_by_em(gain):
    algorithm, state = with_student(gain)
    for data in (colours(COUNTS), longer(colours(COUNTS))):
        found = algorithm.new_clients(state, data, Key(0), 1)
        for k, counts in enumerate(COUNTS):
            rows = [[math.exp(gain * (d == e)) for e in range(D)] for d in range(D) for _ in range(counts[d])]
            prior = [1.0] * D
            for _ in range(15):
                w = [[p * q for p, q in zip(r, prior, strict=True)] for r in rows]
                w = [[p / sum(r) for p in r] for r in w]
                shares = [(sum(r[d] for r in w) + D * float(state.share[d])) / (len(rows) + D) for d in range(D)]
                prior = [s / float(q) for s, q in zip(shares, state.share, strict=True)]
            close(found.prior[k], torch.tensor(prior, dtype=torch.float64), 1e-10)
    held = algorithm.client_params(found, torch.arange(3))
    assert found.domains.shape == (3, 0, D) and torch.equal(held["prior"], found.prior)
    assert torch.equal(held["V.dense1.bias"][2], held["V.dense1.bias"][0])


# ---- a teacher that is a network ----


def test_a_random_teacher_collapses():
    pooled = DomainClassifier((1, 6, 6), D, channels=(4, 4), strides=(2, 1))
    algorithm = make("MLP", classifier=pooled, epochs=1, batch_size=None)
    with pytest.warns(UserWarning, match="collapsed"):
        state = run(algorithm, small_data((30, 40, 50), scale=1), rounds=1).state
    assert float(state.share.max()) > 0.95


def test_the_first_teacher_is_drawn_apart_from_the_student():
    """And not from the same seed's student of another run."""
    algorithm = make("MLP")
    state, other = (algorithm.init(start(algorithm, seed), small_data(), Key(SEED)) for seed in (0, SEED + 1))
    for student in (state.student, other.student):
        assert not any(torch.equal(p, student[n]) for n, p in state.teacher.items())


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


def taught(change):
    return lambda: run(known(teacher=lambda data, key: change(by_brightness(data, key))), small_data())


WEIGHTS = r"must give weights \(4, 6, 3\) that add up to 1 for each sample"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(beta=2), "beta must be a number of at least 0 and at most 1; got 2"),
        (lambda: known(weights="soft"), "'student' or 'teacher'; got 'soft'"),
        (lambda: run(make(classifier=None), small_data(), rounds=1), "FedCG needs one"),
        (taught(lambda w: w.sum(1)), WEIGHTS),
        (taught(lambda w: 2 * w), WEIGHTS),
        (taught(lambda w: w * torch.nan), WEIGHTS),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()

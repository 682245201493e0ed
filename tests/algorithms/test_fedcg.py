"""FedCG against its paper, written as plainly as it can be: client after client, sample after sample, in float64."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from reference import batches, cohort, descend, flat, mean_by_examples
from refusals import refusals
from test_domain_graph import loop_adjacency as equation_6
from test_domain_net import slow as equation_4
from twins import assert_same, classification_loss, client_data, close, ragged_clients, start_of

import fedlib
from fedlib.client.domain_net import DomainClassifier, DomainNet, part
from fedlib.params import row

D, SEED = 3, 7
NETS = {"MLP": fedlib.models.MLP((36, 3, 4)), "CNN": fedlib.models.CNN((1, 6, 6), (2, 3), (4,), kernel=3, padding=1)}
LAYERS = {"MLP": ("dense1", "dense2"), "CNN": ("conv2", "dense1")}
SIZES, COHORT = (1, 2, 4, 6), 3
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


def make(network="CNN", kind=fedlib.algorithms.FedCG, classifier=CLASSIFIER, **settings):
    net = DomainNet(NETS[network], D, LAYERS[network], classifier)
    return kind(classification_loss(net), **{"net": net, "predict": net, **LOCAL, "warm_up": 1, **settings})


def known(network="MLP", **settings):
    return make(network, fedlib.extensions.FedCGKnownDomains, **{"teacher": by_brightness, **settings})


def run(algorithm, data, rounds=3, size=COHORT, **settings):
    return fedlib.fit(algorithm, start_of(algorithm.net), data, rounds, size, seed=SEED, progress=False, **settings)


# ---- the paper ----


def connected(p, a, algorithm):
    """Eq. 5: each layer's modules are the rows of V; V-hat = sigma(A V W) is cut into weights and biases again."""
    hat = dict(p)
    for name in algorithm.net.layers if algorithm.gcn is not None else ():
        weight, bias = p[f"V.{name}.weight"], p[f"V.{name}.bias"]
        v = torch.stack([torch.cat([weight[d].flatten(), bias[d]]) for d in range(D)])
        if f"W.{name}.W" in p:
            v = (a @ v @ p[f"W.{name}.W"]).relu()
        else:
            v = (a @ (a @ v @ p[f"W.{name}.W1"]).relu() @ p[f"W.{name}.W2"]).relu()
        hat |= {f"V.{name}.weight": v[:, : -bias.shape[1]].view(weight.shape), f"V.{name}.bias": v[:, -bias.shape[1] :]}
    return hat


def slow(algorithm, data, rounds):
    """All clients' rounds; gives what the state of FedCG holds."""
    begin, one_hot = algorithm.init(start_of(algorithm.net), data, fedlib.Key(SEED)), torch.eye(D, dtype=torch.float64)
    theta = row(begin.models | begin.modules | begin.graph, 0)
    student, teacher = (part(row(p, 0), "student") for p in (begin.student, begin.teacher))
    a, n, found = torch.eye(D, dtype=torch.float64), data.n.tolist(), {}
    clients = {i: (data.x[data.index[k, : n[k]]], data.y[k, : n[k]]) for k, i in enumerate(data.id.tolist())}
    mended = isinstance(algorithm, fedlib.extensions.FedCGKnownDomains)
    if mended:
        teacher = {}  # no network
        w = algorithm.teacher(data, fedlib.Key(SEED))
        share = sum(w[k, i] for k in range(len(n)) for i in range(n[k])) / sum(n)
        prior = [(sum(w[k, : n[k]]) + D * share) / (n[k] + D) / share for k in range(len(n))]
        found = {"domains": w, "prior": torch.stack(prior)}
    for t in range(1, rounds + 1):
        key, ends, pupils, targets = fedlib.Key(SEED, t), {}, {}, []
        for i in cohort(clients, COHORT, key):
            (x, y), k = clients[i], list(clients).index(i)
            target = w[k, : n[k]] if mended else one_hot[CLASSIFIER(teacher, x).argmax(1)]
            w_d = one_hot[target.argmax(1)]
            if mended and algorithm.weights == "student":
                w_d = CLASSIFIER(student, x).exp() * prior[k]
                w_d = w_d / w_d.sum(1, keepdim=True)

            def task(p, rows):
                out = equation_4(algorithm.net, connected(p, a, algorithm), x[rows], w_d[rows])
                return F.cross_entropy(out, y[rows])

            def imitate(phi, rows):
                return -(target[rows] * CLASSIFIER(phi, x[rows]).log_softmax(1)).sum(1).mean()

            steps = batches(i, n[k], key, batch_size=LOCAL["batch_size"], epochs=LOCAL["epochs"])
            ends[i], pupils[i] = descend(task, theta, steps, 0.1), descend(imitate, student, steps, 0.2)
            targets += [*target]
        theta, student = mean_by_examples(ends, clients), mean_by_examples(pupils, clients)
        if t >= algorithm.warm_up:  # all layers' modules of a domain make one vector
            modules = [flat({n: v[d] for n, v in theta.items() if n[:2] == "V."}) for d in range(D)]
            a = equation_6(torch.stack(modules), algorithm.beta)
        if not mended:
            share = sum(targets) / len(targets)
            teacher = student if algorithm.refresh and t % algorithm.refresh == 0 else teacher
    return found | {"models": theta, "student": student, "teacher": teacher, "adjacency": a, "share": share}


CASES = {
    "as printed": make(refresh=2),
    "no graph, no new teacher": make(gcn=None, refresh=0),
    "bottleneck": make("MLP", gcn=fedlib.server.domain_graph.DomainGCN("bottleneck", factor=4), warm_up=2, beta=0.3),
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
    first = algorithm.init(start_of(algorithm.net), data, fedlib.Key(SEED))
    for field in ("models", "modules", "graph", "student"):
        for name, p in getattr(first, field).items():
            assert not torch.equal(p, getattr(state, field)[name]), f"{name} did not move"


def test_only_the_network_has_the_optimizer_of_the_user():
    rules = (make(optimizer=rule, epochs=1) for rule in (torch.optim.SGD, torch.optim.Adam))
    sgd, adam = (run(rule, small_data(), rounds=1).state for rule in rules)
    close(sgd.student, adam.student, 0)
    assert not torch.equal(sgd.models["dense1.weight"], adam.models["dense1.weight"])


# ---- what it reduces to ----


@pytest.mark.parametrize("gcn", [fedlib.server.domain_graph.DomainGCN(), None], ids=["graph", "no graph"])
def test_the_graph_computed_beforehand_is_that_of_the_loss(gcn):
    """The loss before the first step, which has the graph in it, is that of what clients hold for their answers."""
    algorithm, data = known(gcn=gcn), small_data()
    state, everybody = run(algorithm, data, rounds=1).state, torch.arange(len(data))
    held = algorithm.client_params(state, everybody)
    assert set(held) == {"prior", *start_of(algorithm.net)}
    first_step = replace(algorithm, lr=1e-300, batch_size=None, epochs=1)
    with_graph = first_step.train(state, data, everybody, fedlib.Key(SEED, 4)).log["loss"]
    x, y, real = data.all_rows(torch.float64)
    for k in range(len(data)):
        close(with_graph[k], algorithm.loss(row(held, k), (x[k], y[k], real[k])), 1e-12)
    assert gcn is None or state.adjacency[0, 1] > 0


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
    asked, data = [], small_data()

    def teacher(data, key):
        asked.append((data.id.tolist(), key.seed, key.round))
        return by_brightness(data, key)

    run(known(teacher=teacher), data[[3, 1, 0, 2]], rounds=2)
    assert asked == [(data.id.tolist(), SEED, fedlib.Key(SEED).round)]


def longer(data, extra=5):
    """With more padding, which holds rows and labels of other clients."""
    index, y = (torch.cat([p, p[-1:, :1].expand(len(data), extra)], 1) for p in (data.index, data.y))
    return replace(data, index=index, y=y)


@pytest.mark.parametrize("gain", [1.5, 400.0], ids=["an unsure student", "a perfect one"])
def test_new_clients_find_their_shares_by_em(gain):
    algorithm, data = known(), small_data((8, 5, 4, 6))
    state = run(algorithm, data[:2], rounds=1, size=2).state
    state = replace(state, student={n: p * gain if ".dense1." in n else p for n, p in state.student.items()})
    student, share = part(row(state.student, 0), "student"), state.share.tolist()
    for new in (data[2:], longer(data[2:])):
        found = algorithm.new_clients(state, new, fedlib.Key(0), 1)
        for k, n in enumerate(new.n.tolist()):
            rows, prior = CLASSIFIER(student, data.x[new.index[k, :n]]).softmax(1).tolist(), [1.0] * D
            for _ in range(15):
                w = [[p * q for p, q in zip(r, prior, strict=True)] for r in rows]
                w = [[p / sum(r) for p in r] for r in w]
                shares = [(sum(r[d] for r in w) + D * share[d]) / (n + D) for d in range(D)]
                prior = [s / q for s, q in zip(shares, share, strict=True)]
            close(found.prior[k], torch.tensor(prior, dtype=torch.float64), 1e-10)
    held = algorithm.client_params(found, torch.arange(2))
    assert found.domains.shape == (2, 0, D) and torch.equal(held["prior"], found.prior)
    assert torch.equal(held["V.dense1.bias"][1], held["V.dense1.bias"][0]) and found.prior.std() > 0.1


# ---- a teacher that is a network ----


def test_a_random_teacher_collapses():
    pooled = DomainClassifier((1, 6, 6), D, channels=(4, 4), strides=(2, 1))
    algorithm = make("MLP", classifier=pooled, epochs=1, batch_size=None)
    with pytest.warns(UserWarning, match="collapsed"):
        state = run(algorithm, small_data((30, 40, 50), scale=1), rounds=1).state
    assert float(state.share.max()) > 0.95


def test_the_first_teacher_is_drawn_apart_from_the_student():
    """And not from the same seed's student of another run."""
    algorithm, data = make("MLP"), small_data()
    state, other = (algorithm.init(start_of(algorithm.net, s), data, fedlib.Key(SEED)) for s in (0, SEED + 1))
    for student in (state.student, other.student):
        assert not any(torch.equal(p, student[n]) for n, p in state.teacher.items())


WARMING, ALONE = "A stayed the identity (warm_up={})", "taught alone (refresh={})"
SHORT = [
    (make, {"warm_up": 4}, [WARMING.format(4), ALONE.format(10)]),
    (make, {"warm_up": 3, "refresh": 3}, [ALONE.format(3)]),  # the second one teaches nobody any more
    (make, {"warm_up": 4, "refresh": 2}, [WARMING.format(4)]),
    (make, {"warm_up": 3, "refresh": 2}, []),
    (make, {"warm_up": 4, "refresh": 0, "gcn": None}, []),  # never on purpose
    (make, {"warm_up": 4, "refresh": 0, "beta": 1}, []),
    (known, {"warm_up": 4}, [WARMING.format(4)]),
    (known, {"warm_up": 3}, []),
]


@pytest.mark.parametrize(("make", "settings", "said"), SHORT)
def test_a_run_too_short_for_its_settings_says_so(make, settings, said, recwarn):
    run(make("MLP", epochs=1, **settings), small_data())
    (words,) = [str(w.message) for w in recwarn if "FedCG ended with round 3" in str(w.message)] or [""]
    assert bool(words) == bool(said) and all(part in words for part in said)
    assert words.count("=") == len(said)


# ---- mistakes ----


def taught(change):
    return lambda: run(known(teacher=lambda data, key: change(by_brightness(data, key))), small_data())


WEIGHTS = r"must give weights \(4, 6, 3\) that add up to 1 for each sample"
MISTAKES = {
    "'student' or 'teacher'; got 'soft'": lambda: known(weights="soft"),
    "FedCG needs one": lambda: run(make(classifier=None), small_data(), rounds=1),
    rf"{WEIGHTS}; got torch.Size\(\[4, 3\]\)": taught(lambda w: w.sum(1)),
    WEIGHTS: taught(lambda w: 2 * w),
    "add up to 1 for each sample": taught(lambda w: w * torch.nan),
}
test_mistakes_are_told = refusals({ValueError: MISTAKES})

"""Fine-tuned FedAvg, Ditto and FedRep against slow loops written from their papers, in float64 on ragged clients."""

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy
from twins import SIZES, classification_loss, client_data, count, largest_difference, ragged_clients, twin

import fedlib
from fedlib.algorithms import Ditto, FedAvg, FedRep, FineTunedFedAvg, LGFedAvg, LocalOnly

ROUNDS, COHORT, SEED, LR, EPOCHS = 4, 3, 7, 0.05, 2
SETTINGS = {"lr": LR, "batch_size": 8, "epochs": EPOCHS}
NETWORKS = pytest.mark.parametrize(("network", "cohort"), [("MLP", len(SIZES)), ("CNN", COHORT)])
HEAD = {"MLP": "dense2", "CNN": "dense1"}
NEW = {900 + k: rows for k, rows in ragged_clients((4, 19), seed=5).items()}


def make(kind, network="MLP", **settings):
    predict = twin(network)[1]
    return kind(classification_loss(predict), predict=predict, **(SETTINGS | settings))


def fit(kind, clients, network="MLP", cohort=COHORT, rounds=ROUNDS, lost=0.0, test=None, **settings):
    run = {"seed": SEED, "lost": lost, "eval_data": test, "progress": False, "device": "cpu"}
    return fedlib.fit(make(kind, network, **settings), twin(network)[0], client_data(clients), rounds, cohort, **run)


# --- the slow loops ---------------------------------------------------------------------------------------------------


def cohort_of(t, clients, size):
    ids = list(clients)
    return [ids[k] for k in fedlib.Key(SEED, t).choose(torch.tensor(ids), size, "cohort")]


def sgd(module, start, k, data, t, epochs=EPOCHS, moving="", pull=0, w=None, seed=SEED):
    """Plain SGD of client k on its loss + pull/2 ||theta - w||^2, of the parameters that `moving` is true of."""
    x, y = data
    theta = {name: p.clone() for name, p in start.items()}
    shuffles = fedlib.Key(seed, t).permutations(torch.tensor([k]), "batches", torch.tensor([len(x)]), epochs, len(x))
    for rows in (rows for order in shuffles[0] for rows in order.split(8)):
        module.load_state_dict(theta)
        gradients = torch.autograd.grad(cross_entropy(module(x[rows]), y[rows]), list(module.parameters()))
        for name, g in zip(theta, gradients, strict=True):
            if not moving or moving(name):
                theta[name] = theta[name] - LR * (g + (pull * (theta[name] - w[name]) if pull else 0))
    return theta


def mean(ends, clients):
    """By examples."""
    total = sum(len(clients[k][0]) for k in ends)
    names = next(iter(ends.values()))
    return {name: sum(len(clients[k][0]) / total * end[name] for k, end in ends.items()) for name in names}


def start_of(network):
    params, _, module = twin(network)
    assert [name for name, _ in module.named_parameters()] == list(params)
    return params, module


def slow_fedavg(network, clients, cohort, rounds):
    w, module = start_of(network)
    for t in range(1, rounds + 1):
        w = mean({k: sgd(module, w, k, clients[k], t) for k in cohort_of(t, clients, cohort)}, clients)
    return w


def rows_differ(stack, rows):
    """Largest difference of a stack from dictionaries of the same names, one for each row."""
    rows = list(rows)
    assert all(len(p) == len(rows) for p in stack.values())
    return largest_difference(stack, {name: torch.stack([row[name] for row in rows]) for name in stack})


def held(kind, result, network="MLP", **settings):
    return make(kind, network, **settings).client_params(result.state, torch.arange(len(result.ids)))


# --- Ditto ------------------------------------------------------------------------------------------------------------


@NETWORKS
def test_ditto(network, cohort, clients):
    """Algorithm 1 of Li et al. (2021): w by FedAvg, and v_k <- v_k - lr (grad F_k(v_k) + lambda (v_k - w^t))."""
    result = fit(Ditto, clients, network, cohort, lam=0.6)
    w, module = start_of(network)
    v = dict.fromkeys(clients, w)
    for t in range(1, ROUNDS + 1):
        drawn = cohort_of(t, clients, cohort)
        ends = {k: sgd(module, w, k, clients[k], t) for k in drawn}
        v |= {k: sgd(module, v[k], k, clients[k], t, pull=0.6, w=w) for k in drawn}
        w = mean(ends, clients)
    assert rows_differ(result.state.models, [w]) <= 1e-10
    assert rows_differ(result.state.own, v.values()) <= 1e-10
    assert rows_differ(held(Ditto, result, network), v.values()) <= 1e-10


def test_ditto_without_the_pull_is_fedavg_beside_local_only(clients):
    ours, fedavg, alone = (fit(kind, clients).state for kind in (partial(Ditto, lam=0), FedAvg, LocalOnly))
    assert largest_difference(ours.models, fedavg.models) <= 1e-12
    assert largest_difference(ours.own, alone.local) <= 1e-12


def test_a_new_client_of_ditto_trains_from_w_towards_w(clients):
    result = fit(Ditto, clients, lam=0.6)
    w, module = {name: p[0] for name, p in result.state.models.items()}, twin("MLP")[2]
    v = dict.fromkeys(NEW, w)
    for t in (1, 2, 3):
        v = {k: sgd(module, v[k], k, NEW[k], t, pull=0.6, w=w, seed=11) for k in NEW}
    served = fedlib.new_clients(make(Ditto, lam=0.6), result, client_data(NEW), rounds=3, seed=11)
    assert rows_differ(served.state.own, v.values()) <= 1e-10


def test_ditto_sends_what_fedavg_sends_and_trains_twice(clients):
    ours, plain = (fit(kind, clients).history for kind in (Ditto, FedAvg))
    assert ours[["bytes_down", "bytes_up"]].equals(plain[["bytes_down", "bytes_up"]])
    assert ours["examples"].tolist() == (2 * plain["examples"]).tolist()
    assert ours["flops"].tolist() == (2 * plain["flops"]).tolist()


# --- FedRep -----------------------------------------------------------------------------------------------------------


@NETWORKS
@pytest.mark.parametrize("together", [False, True], ids=["FedRep", "FedPer"])
def test_fedrep(network, cohort, together, clients):
    """Algorithm 1 of Collins et al. (2021); and FedPer, which trains both parts at once, is LG-FedAvg of the head."""
    name, head_epochs = HEAD[network], 3
    kind = partial(LGFedAvg, local=(name,)) if together else partial(FedRep, local=(name,), head_epochs=head_epochs)
    result = fit(kind, clients, network, cohort)
    phi, module = start_of(network)

    def is_head(n):
        return n.startswith(f"{name}.")

    head = {k: {n: p for n, p in phi.items() if is_head(n)} for k in clients}
    for t in range(1, ROUNDS + 1):
        ends = {}
        for k in cohort_of(t, clients, cohort):
            if together:
                end = sgd(module, phi | head[k], k, clients[k], t)
            else:
                end = sgd(module, phi | head[k], k, clients[k], t, head_epochs, is_head)
                end = sgd(module, end, k, clients[k], t, moving=lambda n: not is_head(n))
            head[k] = {n: p for n, p in end.items() if is_head(n)}
            ends[k] = {n: p for n, p in end.items() if not is_head(n)}
        phi = phi | mean(ends, clients)
    assert rows_differ(result.state.local, head.values()) <= 1e-10
    assert rows_differ(held(kind, result, network), [phi | head[k] for k in clients]) <= 1e-10


def test_fedrep_without_a_head_is_fedavg(clients):
    ours, plain = (fit(kind, clients) for kind in (partial(FedRep, local=()), FedAvg))
    assert largest_difference(ours.state.models, plain.state.models) <= 1e-12
    columns = ["train_loss", "bytes_down", "bytes_up", "examples", "flops"]
    assert ours.history[columns].equals(plain.history[columns])


def test_a_new_client_of_fedrep_trains_a_head_on_the_representation_as_it_is(clients):
    result, module = fit(FedRep, clients, head_epochs=3), twin("MLP")[2]
    first = {name: p[0] for name, p in result.state.models.items()}
    theta = dict.fromkeys(NEW, first | {n: p for n, p in twin("MLP")[0].items() if n.startswith("dense2.")})
    for t in (1, 2):
        theta = {k: sgd(module, theta[k], k, NEW[k], t, 3, lambda n: n not in first, seed=11) for k in NEW}
    served = fedlib.new_clients(make(FedRep, head_epochs=3), result, client_data(NEW), rounds=2, seed=11)
    assert rows_differ(held(FedRep, served), theta.values()) <= 1e-10


def test_fedrep_sends_the_representation_alone(clients):
    history = fit(FedRep, clients, head_epochs=3).history
    size = 8 * count({n: p for n, p in twin("MLP")[0].items() if n.startswith("dense1.")})
    assert history["bytes_down"].tolist() == [COHORT * size] * ROUNDS
    assert history["bytes_up"].tolist() == [COHORT * (size + 8)] * ROUNDS  # and the weight of the mean
    for t, examples in enumerate(history["examples"], 1):
        assert examples == (3 + EPOCHS) * sum(len(clients[k][0]) for k in cohort_of(t, clients, COHORT))


# --- fine-tuning ------------------------------------------------------------------------------------------------------

T, TUNED = 3, {"fedavg_rounds": 3, "finetune_epochs": 3}


@NETWORKS
def test_fine_tuning(network, cohort, clients):
    """FedAvg to the end, then every client trains the last model; one round more goes on from there."""
    module, w = twin(network)[2], slow_fedavg(network, clients, cohort, T)
    v = dict.fromkeys(clients, w)
    never = set(clients).difference(*(cohort_of(t, clients, cohort) for t in range(1, T + 1)))
    assert never or cohort == len(clients)
    for t in (T + 1, T + 2):
        v = {k: sgd(module, v[k], k, clients[k], t, 3) for k in clients}
        result = fit(FineTunedFedAvg, clients, network, cohort, t, test=client_data(clients), **TUNED)
        assert rows_differ(result.state.models, [w]) <= 1e-10
        assert rows_differ(held(FineTunedFedAvg, result, network), v.values()) <= 1e-10
    right = 0
    for k, (x, y) in clients.items():
        module.load_state_dict(v[k])
        right += int((module(x).argmax(1) == y).sum())
    assert result.history["test_accuracy"].iloc[-1] == pytest.approx(right / sum(SIZES))
    assert result.history["clients"].tolist() == [cohort] * T + [len(clients)] * 2


@pytest.mark.filterwarnings("ignore:no client has fine-tuned")
def test_before_fine_tuning_it_is_fedavg(clients):
    test = client_data(clients)
    ours, plain = (fit(kind, clients, rounds=T, test=test) for kind in (partial(FineTunedFedAvg, **TUNED), FedAvg))
    assert largest_difference(ours.state.models, plain.state.models) == 0
    assert ours.history.drop(columns=["seconds", "server_seconds"]).equals(
        plain.history.drop(columns=["seconds", "server_seconds"])
    )


def test_without_fedavg_it_is_local_only(clients):
    ours = fit(FineTunedFedAvg, clients, rounds=3, fedavg_rounds=0, finetune_epochs=EPOCHS)
    alone = fit(LocalOnly, clients, rounds=3, cohort=len(clients))
    assert largest_difference(held(FineTunedFedAvg, ours), alone.state.local) == 0
    columns = ["train_loss", "bytes_down", "bytes_up", "examples", "flops"]
    assert ours.history[columns].equals(alone.history[columns])


def test_it_is_local_only_from_fedavgs_last_model(clients):
    """As the docstring says."""
    params, data = twin("MLP")[0], client_data(clients)
    begin = fedlib.params.row(fit(FedAvg, clients, rounds=T).state.models, 0)
    alone, everybody = make(LocalOnly, epochs=3), torch.arange(len(clients))
    update = alone.train(alone.init(begin, data, fedlib.Key(0)), data, everybody, fedlib.Key(SEED, T + 1))
    ours = fit(FineTunedFedAvg, clients, rounds=T + 1, **TUNED)
    assert largest_difference(ours.state.own, update.client_state["local"]) == 0
    assert largest_difference(begin, params) > 1e-3


def test_fine_tuning_may_have_a_rate_of_its_own(clients):
    """FedAvg is as without it; None is FedAvg's rate."""
    ours = fit(FineTunedFedAvg, clients, rounds=3, fedavg_rounds=0, finetune_epochs=EPOCHS, finetune_lr=0.03)
    alone = fit(LocalOnly, clients, rounds=3, cohort=len(clients), lr=0.03)
    assert largest_difference(held(FineTunedFedAvg, ours), alone.state.local) == 0
    a, b, c = (fit(FineTunedFedAvg, clients, rounds=T + 1, finetune_lr=lr, **TUNED).state for lr in (None, LR, 0.03))
    assert largest_difference(a.models, c.models) == largest_difference(a.own, b.own) == 0
    assert largest_difference(a.own, c.own) > 1e-4


def test_a_run_too_short_to_fine_tune_says_so(clients):
    with pytest.warns(UserWarning, match="no client has fine-tuned: run more rounds than fedavg_rounds=3"):
        fit(FineTunedFedAvg, clients, rounds=3, fedavg_rounds=3)


def test_fine_tuning_uses_no_bytes(clients):
    history = fit(FineTunedFedAvg, clients, rounds=T + 2, **TUNED).history.set_index("round")
    plain = fit(FedAvg, clients, rounds=T).history.set_index("round")
    for column in ("bytes_down", "bytes_up"):
        assert history[column].tolist() == [*plain[column], 0, 0] and plain[column].min() > 0
    assert history["examples"].tolist() == [*plain["examples"], 3 * sum(SIZES), 3 * sum(SIZES)]
    per_example = plain.loc[1, "flops"] / plain.loc[1, "examples"]
    assert history.loc[[T + 1, T + 2], "flops"].tolist() == [3 * sum(SIZES) * per_example] * 2
    assert history["flops (fine-tuning)"].fillna(0).tolist() == [0] * T + [3 * sum(SIZES) * per_example] * 2


def test_who_is_lost_while_fine_tuning_goes_on_with_the_servers_model(clients):
    """And is scored with it, beside others who have one of their own; here it is the first two, and more."""
    data, algorithm, seed, module = client_data(clients), make(FineTunedFedAvg, **TUNED), 8, twin("MLP")[2]
    run = {"seed": seed, "lost": 0.4, "progress": False, "device": "cpu"}
    result = fedlib.fit(algorithm, twin("MLP")[0], data, T + 1, **run)
    there = fedlib.Key(seed, T + 1).uniform(data.id, "drop-out") >= 0.4
    assert torch.equal(result.state.tuned, there) and there.any() and not there[:2].any()
    own, accuracy = held(FineTunedFedAvg, result), fedlib.evaluate(algorithm, result, data)["accuracy"]
    for k, (x, y) in enumerate(clients.values()):
        theta = {name: p[k] for name, p in own.items()}
        assert (largest_difference(theta, {name: p[0] for name, p in result.state.models.items()}) > 1e-6) == there[k]
        module.load_state_dict(theta)
        assert accuracy[k] == pytest.approx(float((module(x).argmax(1) == y).double().mean()))


def test_slow_clients_are_not_slow_at_home(clients):
    history = fit(FineTunedFedAvg, clients, rounds=T + 1, stragglers=0.9, **TUNED).history
    assert history["examples"].iloc[-1] == 3 * sum(SIZES)


def test_a_new_client_fine_tunes_the_servers_model(clients):
    result, module = fit(FineTunedFedAvg, clients, rounds=T + 1, **TUNED), twin("MLP")[2]
    v = dict.fromkeys(NEW, {name: p[0] for name, p in result.state.models.items()})
    for t in (1, 2):
        v = {k: sgd(module, v[k], k, NEW[k], t, 3, seed=11) for k in NEW}
    algorithm = make(FineTunedFedAvg, **TUNED)
    served = fedlib.new_clients(algorithm, result, client_data(NEW), rounds=2, seed=11)
    assert rows_differ(held(FineTunedFedAvg, served), v.values()) <= 1e-10


@pytest.mark.filterwarnings("ignore:no client has fine-tuned")
def test_a_run_resumes_while_fine_tuning(clients, tmp_path):
    run = partial(fedlib.fit, make(FineTunedFedAvg, **TUNED), twin("MLP")[0], client_data(clients))
    settings = {"clients_per_round": COHORT, "seed": SEED, "progress": False}
    for rounds in (T, T + 1, T + 2):
        resumed = run(rounds, checkpoint=fedlib.Checkpoint(tmp_path / "run"), **settings)
    whole = run(T + 2, **settings)
    assert largest_difference(resumed.state.own, whole.state.own) == 0 and resumed.state.round == T + 2
    assert resumed.history["bytes_up"].equals(whole.history["bytes_up"])


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong", "error", "message"),
    [
        (Ditto, {"lam": -1}, ValueError, "lam must be a number of at least 0; got -1"),
        (FedRep, {"head_epochs": 0}, ValueError, "head_epochs must be a whole number of at least 1; got 0"),
        (FedRep, {"local": "dense2"}, TypeError, r"local must be a list of names, such as \['dense2'\]"),
        (FedRep, {"local": ("head",)}, ValueError, r"local names \['head'\], which no parameter has"),
        (FedRep, {"local": ("dense1", "dense2")}, ValueError, "leaves no layer to share; without one, take LocalOnly"),
        (FineTunedFedAvg, {"fedavg_rounds": -1}, ValueError, "fedavg_rounds must be a whole number of at least 0"),
        (FineTunedFedAvg, {"finetune_lr": 0}, ValueError, "finetune_lr must be a number above 0, or None; got 0"),
        (FineTunedFedAvg, {"finetune_epochs": 0}, ValueError, "finetune_epochs must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_told(kind, wrong, error, message, clients):
    with pytest.raises(error, match=message):
        fit(kind, clients, **wrong)

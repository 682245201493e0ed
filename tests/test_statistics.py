"""Scores of clients, clusters and seeds, against scikit-learn, SciPy and counts."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn import metrics

from fedlib import statistics


def test_interval_is_that_of_student():
    values = [0.3, 0.5, 0.9, 0.4]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    mean, half = statistics.interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-12)
    assert statistics.interval([0.5])[0] == 0.5 and statistics.interval([0.5])[1] != statistics.interval([0.5])[1]


VERDICTS = {"holds": ([1.1, 1.2, 1.15], 3), "the opposite holds": ([0.8, 0.9, 0.85], 0)}
VERDICTS["undecided"] = ([0.5, 1.5, 1.1], 2)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_compare_pairs_seeds(verdict):
    a, agree = VERDICTS[verdict]
    found = statistics.compare(dict(enumerate(a)), {2: 1.0, 1: 1.0, 0: 1.0})
    assert (found["verdict"], found["agree"], found["seeds"]) == (verdict, agree, 3)
    assert found["difference"] == pytest.approx(sum(a) / 3 - 1)


def table(**columns):
    return pd.DataFrame({"id": range(len(next(iter(columns.values())))), "n": 1} | columns)


SUMMARIES = [  # scores of clients, their column, what a summary says of them
    (np.arange(10) / 10, "accuracy", (0.45, 0.0, 0.0)),
    (np.arange(11)[::-1] / 10, "accuracy", (0.5, 0.05, 0.0)),  # a tenth of eleven is two, rounded up
    ([0.5, 0.1, 0.9, 0.3, 0.2], "accuracy", (0.4, 0.1, 0.1)),
    (np.arange(11.0), "mse", (5.0, 9.5, 10.0)),
    ([1.0, 5.0], "test_loss", (3.0, 5.0, 5.0)),
    ([np.nan, 3.0, np.nan, 1.0], "r2", (2.0, 1.0, 1.0)),
    (np.r_[np.arange(10.0), np.nan], "r2", (4.5, 0.0, 0.0)),  # ten clients have a score
]


@pytest.mark.parametrize(("values", "column", "expected"), SUMMARIES)
def test_summary(values, column, expected):
    found = statistics.summary(table(**{column: values}), column)
    assert list(found) == ["mean", "worst decile", "worst"]
    assert tuple(found.values()) == pytest.approx(expected)


@pytest.mark.parametrize(("column", "expected"), [("accuracy", 0.25), ("mse", 0.5)])
def test_negative_transfer(column, expected):
    """One client falls, two rise and one stays as it is; the order of rows does not matter."""
    ours, alone = (table(**{column: v}) for v in ([0.1, 0.5, 0.6, 0.9], [0.2, 0.5, 0.4, 0.8]))
    assert statistics.negative_transfer(ours, alone, column) == expected
    assert statistics.negative_transfer(ours.iloc[[2, 0, 3, 1]], alone.iloc[::-1], column) == expected
    with pytest.raises(ValueError, match=r"different clients: \[3\] differ"):
        statistics.negative_transfer(ours, alone[:3], column)


HISTORY = pd.DataFrame({"round": range(7)}).assign(
    validation_accuracy=[np.nan, np.nan, 0.5, 0.7, 0.7, np.nan, 0.6],
    test_accuracy=[np.nan, np.nan, 0.8, 0.6, 0.5, np.nan, 0.8],
)


@pytest.mark.parametrize("column", ["accuracy", "loss"])
def test_three_readings_of_one_run(column):
    """Ties take the first round, rounds without scores count for nothing, a low loss is good."""
    history = HISTORY.rename(columns=lambda name: name.replace("accuracy", column))
    if column == "loss":
        history.loc[:, ["validation_loss", "test_loss"]] = 1 - history[["validation_loss", "test_loss"]]
    found = statistics.readings(history, column)
    assert found.index.tolist() == ["last round", "chosen by validation", "max on test"]
    assert found["round"].tolist() == [6, 3, 2] and list(found) == ["round", "test"]
    accuracy = found["test"] if column == "accuracy" else 1 - found["test"]
    assert accuracy.tolist() == pytest.approx([0.8, 0.6, 0.8])
    for missing in ("validation", "test"):
        with pytest.raises(ValueError, match=rf"no \['{missing}_{column}'\]: give fit eval_data=.*'validation': "):
            statistics.readings(history.drop(columns=f"{missing}_{column}"), column)


RANDOM = np.random.RandomState(0)
CLUSTERS = {  # groups and what was found
    "at random": (RANDOM.randint(0, 3, 40), RANDOM.randint(0, 5, 40)),
    "the groups": (np.arange(6) // 2, np.array([5, 5, 2, 2, 0, 0])),
    "each client alone": (np.arange(6) // 2, np.arange(6)),
    "all in one": (np.arange(6) // 2, np.zeros(6, int)),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_cluster_scores_are_those_of_scikit_learn(case):
    true, found = CLUSTERS[case]
    scores = statistics.cluster_scores(true, torch.tensor(found))
    counts = [max(np.sum((found == c) & (true == g)) for g in range(3)) for c in range(6)]
    ari, ami = metrics.adjusted_rand_score(true, found), metrics.adjusted_mutual_info_score(true, found)
    assert scores == pytest.approx({"ari": ari, "ami": ami, "purity": sum(counts) / len(true)})
    names = np.array([7, 0, 3, 9, 1, 8])
    assert statistics.cluster_scores(2 - true, names[found]) == pytest.approx(scores)


def test_clusters_over_rounds_adds_columns():
    true = np.arange(8) % 3
    callback = statistics.clusters_over_rounds(true)
    for clusters in (2, 3):
        entry, found = {"round": clusters}, torch.arange(8) % clusters
        callback(clusters, SimpleNamespace(assignment=found), entry)
        assert entry == {"round": clusters, "clusters": clusters} | statistics.cluster_scores(true, found)
    assert entry["ari"] == entry["ami"] == entry["purity"] == 1

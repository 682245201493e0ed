"""The drawings of a split, of modules that change, and of a network as a graph say what was computed."""

import re
from statistics import mean

import torch

from book import figures, results
from fedlib.server.clusters import bipartition
from fedlib.server.model_graph import model_graph


def test_the_drawn_features_are_those_of_the_library():
    stack = {"dense1.weight": torch.tensor([[[2.0, -1.0]]]), "dense1.bias": torch.tensor([[0.5]])}
    graph = model_graph(stack, ["dense1"])
    label = figures.network_as_graph().html.partition('aria-label="')[2].partition('"')[0]
    drawn = re.findall(r"([abc]): layer (\d) (\d), bias ([\d.]+), in ([\d.]+), out ([\d.]+?)[.\"]", label + '"')
    found = torch.tensor([[float(v) for v in row[1:]] for row in drawn])
    assert [row[0] for row in drawn] == ["a", "b", "c"] and torch.allclose(found, graph.x[0], atol=0.05)
    assert graph.adjacency[0, 0, 0, 2] == 2 and graph.adjacency[0, 1, 1, 2] == 1


def test_the_drawn_split_is_the_one_that_cfl_chooses():
    html, alpha = figures.worked_split().html.replace("−", "-"), torch.eye(4)
    for i, j, value in re.findall(r"(\d) and (\d) (-?\d\.\d)", html):
        alpha[int(i) - 1, int(j) - 1] = alpha[int(j) - 1, int(i) - 1] = float(value)
    assert int((alpha == 0).sum()) == 0 and torch.linalg.eigvalsh(alpha).min() > -0.1
    found = bipartition(alpha)
    assert found.assignment.tolist() == [0, 0, 1, 1] and f"largest: {found.objective:.1f}, chosen" in html


def test_the_drawn_changes_of_modules_are_the_stored_ones():
    stored, html = results.load("rare_domains_matrix")["figures"], figures.paces_of_modules().html
    names = "neighbour, changes apart", "other rare, changes apart", "common, moved", "rare, moved", "rare, moved"
    for drawn, runs in zip(html.split("</svg>"), ("rare twins", "rare twins, own clients"), strict=False):
        told = [mean(stored[runs][name].values()) for name in names]
        lines = torch.tensor([[*map(float, ends)] for ends in re.findall(r"M(\S+) (\S+)L(\S+) (\S+)\" ", drawn)])
        assert torch.allclose((lines[:, :2] - lines[:, 2:]).norm(dim=1) / 20, torch.tensor(told), atol=0.04)
        assert re.findall(r">(\d\.\d)<", drawn) == [f"{gap:.1f}" for gap in told[:2]]

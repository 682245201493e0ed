"""The drawings of a split in chapter 6 and of a network as a graph in chapter 12 say what fedlib computes."""

import re

import torch

from book import figures
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

"""Clusters and roles, as they are logged."""

import json
import logging
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.compat.roles import clusterize, set_seed  # noqa: E402


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def logged(caplog: pytest.LogCaptureFixture, nodes: int | Path) -> list[str]:
    caplog.set_level(logging.INFO, logger="fedlearn")
    clusterize(model=model(), example_args=(torch.rand(4, 8),), nodes=nodes)
    return [record.getMessage() for record in caplog.records if record.name == "fedlearn"]


def test_a_number_of_nodes_is_one_cluster_from_root_to_leaf(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, 3)
    assert [line.split(", ")[:2] for line in lines] == [
        ["node_0: cluster 0", "root"],
        ["node_1: cluster 0", "stem"],
        ["node_2: cluster 0", "leaf"],
    ]


def test_nodes_of_a_file_that_hold_the_model_alone_are_clusters_of_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = {"IP": "192.0.2.1:1", "benchmarks": {"ram": 1, "bandwidth": 10}}
    (tmp_path / "nodes.json").write_text(json.dumps({"0": node, "1": node}))
    lines = logged(caplog, tmp_path / "nodes.json")
    assert [line.split(", ")[:2] for line in lines] == [["node_0: cluster 0", "whole"], ["node_1: cluster 1", "whole"]]


def test_arguments_by_name_reach_the_model() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(4, 8)

        def forward(self, left: Tensor, *, right: Tensor) -> Tensor:
            total: Tensor = self.first(left) + self.second(right)
            return total

    found = clusterize(
        model=Sum(), example_args=(torch.rand(2, 8),), example_kwargs={"right": torch.rand(2, 4)}, nodes=1
    )
    assert len(found.crews) == 1
    assert clusterize(model=model(), example_kwargs={"input": torch.rand(4, 8)}, nodes=1).crews


def test_a_seed_makes_initial_weights_the_same() -> None:
    set_seed(42)
    first = torch.rand(3)
    set_seed(42)
    assert torch.equal(first, torch.rand(3))

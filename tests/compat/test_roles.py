"""Clusters and roles, as they are logged."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.compat.roles import Place, clusterize, set_seed  # noqa: E402


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


def test_a_scripted_model_takes_arguments_by_name_too(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that PyTorch will no longer write some day
        torch.jit.save(torch.jit.script(model()), tmp_path / "scripted.pt")
    found = clusterize(model=tmp_path / "scripted.pt", example_kwargs={"input": torch.rand(4, 8)}, nodes=1)
    assert len(found.crews) == 1


def test_a_seed_makes_initial_weights_the_same() -> None:
    set_seed(42)
    first = torch.rand(3)
    set_seed(42)
    assert torch.equal(first, torch.rand(3))


def test_a_file_of_nodes_says_how_many_there_are_and_where_the_first_one_is(tmp_path: Path) -> None:
    benchmarks = {"ram": 8, "bandwidth": 10}
    path = tmp_path / "node_configs.json"
    assert Place.of_file(path) == Place()

    def of(*addresses: str) -> Place:
        path.write_text(json.dumps({n: {"IP": each, "benchmarks": benchmarks} for n, each in enumerate(addresses)}))
        return Place.of_file(path)

    assert of("0.0.0.0:8080", "0.0.0.0:8081") == Place(2, "127.0.0.1", 8080)
    assert of("0.0.0.0:8080", "192.0.2.1:8081") == Place(2, "0.0.0.0", 8080)
    assert of("192.0.2.1:5", "192.0.2.2:6", "192.0.2.3:6") == Place(3, "192.0.2.1", 5)
    with pytest.raises(ValueError, match=r"node 0: IP: expected HOST:PORT, got '192.0.2.1'"):
        of("192.0.2.1")


def test_the_model_is_kept_beside_the_file_of_nodes(tmp_path: Path) -> None:
    node = {"IP": "192.0.2.1:1", "benchmarks": {"ram": 1, "bandwidth": 10}}
    (tmp_path / "nodes.json").write_text(json.dumps({"0": node}))
    given = model()
    clusterize(model=given, example_args=(torch.rand(4, 8),), nodes=tmp_path / "nodes.json")
    kept = torch.load(tmp_path / "model.pt", weights_only=False)
    torch.testing.assert_close(kept.state_dict(), given.state_dict())


def test_a_model_with_dropout_and_batch_norms_has_clusters(tmp_path: Path) -> None:
    node = {"IP": "192.0.2.1:1", "benchmarks": {"ram": 1, "bandwidth": 10}}
    (tmp_path / "nodes.json").write_text(json.dumps({"0": node}))
    made = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    examples: tuple[dict[str, Any], ...] = (
        {"example_args": (torch.rand(4, 8),)},
        {"example_kwargs": {"input": torch.rand(4, 8)}},
    )
    for example in examples:
        found = clusterize(model=made, nodes=tmp_path / "nodes.json", **example)
        assert len(found.crews) == 1

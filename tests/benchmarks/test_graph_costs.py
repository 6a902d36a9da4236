"""Models that travel as graphs beside their modules: what is compared, and how it is shown."""

from collections.abc import Callable
from importlib.util import find_spec
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

TINY = ("--members", "4", "--rounds", "2", "--models", "graph net", "LSTM 64")


def test_graphs_are_compared_with_their_modules(read_json: ReadJson) -> None:
    report = read_json("graph_costs", *TINY)
    assert report["members"] == 4
    assert [result["model"] for result in report["results"]] == ["graph net", "LSTM 64"]
    for result in report["results"]:
        assert result["calls"] > 5
        for ratio in (result["inference"], result["members"]):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        of_module, of_graph = result["ways"]
        assert of_module.startswith("loss: ")
        assert of_graph.startswith("Program: ")


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("graph_costs", *TINY[:-1])
    assert done.returncode == 0, done.stderr
    assert "graph net" in done.stdout
    assert "graph / module" in done.stdout

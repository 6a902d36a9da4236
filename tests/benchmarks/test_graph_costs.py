"""Models that travel as graphs beside their modules: what is compared, and how it is shown."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

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

"""Members beside inference, and graphs beside their modules: what is compared, and how it is shown."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

TINY = ("--members", "4", "--rounds", "2", "--rank", "2", "--networks", "graph net", "GRU 64")


def test_members_are_compared_with_inference_and_graphs_with_their_modules(read_json: ReadJson) -> None:
    report = read_json("member_costs", *TINY)
    assert (report["members"], report["rank"]) == (4, 2)
    assert [result["network"] for result in report["results"]] == ["graph net", "GRU 64"]
    for result in report["results"]:
        assert result["calls"] > 5
        for figure in ("share_of_inference", "graph", "graph_members"):
            ratio = result[figure]
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        of_module, of_graph = result["ways"]
        assert of_module.startswith(("_next_token: ", "_class_of_graphs: "))
        assert of_graph.startswith("Program: ")

"""Members of convolutional and recurrent modules beside inference: what is compared, and how it is shown."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

TINY = ("--members", "4", "--rounds", "2", "--modules", "CNN, deep", "GRU 64")


def test_members_are_compared_with_inference_on_their_rows(read_json: ReadJson) -> None:
    report = read_json("member_layers", *TINY, "--rank", "2")
    assert (report["members"], report["rank"]) == (4, 2)
    assert [result["module"] for result in report["results"]] == ["CNN, deep", "GRU 64"]
    for result in report["results"]:
        share = result["share_of_inference"]
        assert 0 < share["low"] <= share["median"] <= share["high"]
        assert result["way"].startswith("loss: ")

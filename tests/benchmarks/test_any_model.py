from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

TINY = ("--widths", "8", "--populations", "12", "--rounds", "2", "--length", "4")


def test_ways_to_try_members_are_compared_with_inference(read_json: ReadJson) -> None:
    report = read_json("any_model", *TINY, "--texts", "2", "--rank", "2")
    assert (report["length"], report["texts"], report["rank"]) == (4, 2, 2)
    assert (report["evotorch"] is not None) == (find_spec("evotorch") is not None)
    contestants = {contestant["name"]: contestant for contestant in report["contestants"]}
    assert list(contestants)[:3] == ["inference", "inference, 32 at a time", "ours"]
    assert ("dense weights, evotorch" in contestants) == (find_spec("evotorch") is not None)
    for contestant in contestants.values():
        speed = contestant["thousand_tokens_per_s"]
        assert 0 < speed["low"] <= speed["median"] <= speed["high"]
        assert (contestant["width"], contestant["population"], contestant["members"]) == (8, 12, 12)
    assert contestants["inference"]["share_of_inference"]["median"] == 1.0
    assert contestants["ours"]["way"].startswith("loss: ")

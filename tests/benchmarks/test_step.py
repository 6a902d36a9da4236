from collections.abc import Callable
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]


def test_parts_of_a_step_are_told_apart(read_json: ReadJson) -> None:
    report = read_json("step", "--hidden-size", "8", "--population-limit", "128", "--n-steps", "3")
    assert (report["hidden_size"], report["population_limit"]) == (8, 128)
    medians = {part["name"]: part["ms"]["median"] for part in report["parts"]}
    assert min(medians["trials"], medians["optimizer, both replicas"], medians["all else"]) > 0
    assert report["medians but trials, ms"] == pytest.approx(sum(medians.values()) - medians["trials"])

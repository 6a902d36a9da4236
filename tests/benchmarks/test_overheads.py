from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_costs_of_callbacks_and_of_a_status_are_reported(read_json: ReadJson) -> None:
    report = read_json("overheads", "--volunteers", "10", "--rounds", "2")
    assert [cost["what"] for cost in report["costs"]] == [
        "5 callbacks hear of a step",
        "a status of 10 volunteers, gathered",
        "a status of 10 volunteers, written",
    ]
    assert all(0.0 < cost["ms"]["low"] <= cost["ms"]["high"] for cost in report["costs"])

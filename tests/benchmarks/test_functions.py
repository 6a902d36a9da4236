from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_losses_of_both_functions_are_reported(read_json: ReadJson) -> None:
    report = read_json("functions", "--seeds", "1", "2", "--evaluations", "640", "--no-peers")
    results = report["results"]
    assert [(each["function"], each["learner"]) for each in results] == [
        (function, "fedlearn") for function in ("Rosenbrock", "network")
    ]
    assert [each["parameters"] for each in results] == [100, 201]
    for each in results:
        assert each["evaluations"] == 640
        assert len(each["losses"]) == 2
        assert max(each["losses"]) < each["start_loss"]
    assert results[0]["start_loss"] == 99 * (100 * 0.25**2 + 0.5**2)

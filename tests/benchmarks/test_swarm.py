from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_a_server_is_measured_with_few_and_with_more_and_behind_relays(read_json: ReadJson) -> None:
    report = read_json("swarm", "--volunteers", "1", "20", "--relays", "0", "1", "--steps", "5")
    costs = report["costs"]
    assert [(cost["volunteers"], cost["relays"]) for cost in costs] == [(1, 0), (1, 1), (20, 0), (20, 1)]
    assert costs[0]["relay_ms"] == costs[2]["relay_ms"] == 0.0
    for cost in costs:
        assert 0 < cost["step_ms"]["low"] <= cost["step_ms"]["median"] <= cost["step_ms"]["high"]
        assert cost["server_ms"] >= 0.0
        assert cost["evaluating"] == 0.0


def test_volunteers_that_compute_are_asked_how_much_of_their_time_they_do(read_json: ReadJson) -> None:
    (cost,) = read_json("swarm", "--volunteers", "2", "--steps", "3", "--member-ms", "2")["costs"]
    # Of 500 members a second that each can do; a step takes what a group takes at least.
    assert 0 < cost["members_per_s_each"] <= 500
    assert cost["evaluating"] == cost["members_per_s_each"] * 2e-3
    assert cost["step_ms"]["low"] >= 16 * 2 * 0.9

from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_a_server_is_measured_with_and_without_relays(read_json: ReadJson) -> None:
    report = read_json("relays", "--volunteers", "6", "--relays", "0", "1", "--steps", "5")
    flat, behind = report["costs"]
    assert [(cost["volunteers"], cost["relays"]) for cost in (flat, behind)] == [(6, 0), (6, 1)]
    assert flat["relay_ms"] == 0.0
    assert min(cost["server_ms"] for cost in (flat, behind)) >= 0.0
    assert all(0 < cost["step_ms"]["low"] <= cost["step_ms"]["median"] for cost in (flat, behind))

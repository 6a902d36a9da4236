from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_plans_for_twelve_machines_take_less_than_a_second_and_more_are_packed(read_json: ReadJson) -> None:
    report = read_json("planner", "--machines", "12", "14", "--repeats", "1", "--pieces", "120")
    twelve, fourteen = report["costs"]
    assert (twelve["machines"], fourteen["machines"]) == (12, 14)
    assert twelve["seats"]
    assert twelve["members_per_s"] > 0
    print(f"twelve machines: {twelve['cpu_s']:.2f} CPU s")
    assert twelve["cpu_s"] < 2.0, "a second, and as much for a busy machine"

from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]


def test_a_server_is_measured_with_few_and_with_more(read_json: ReadJson) -> None:
    report = read_json("swarm", "--volunteers", "1", "20", "--steps", "5")
    few, more = report["costs"]
    assert (few["volunteers"], more["volunteers"]) == (1, 20)
    assert few["times_one"] == 1.0
    assert more["times_one"] == more["step_ms"]["median"] / few["step_ms"]["median"]
    assert 0 < few["step_ms"]["low"] <= few["step_ms"]["median"] <= few["step_ms"]["high"]
    assert more["server_ms"] >= 0.0


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("swarm", "--volunteers", "2", "3", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["2", "3"]


def test_volunteers_that_compute_are_asked_how_much_of_their_time_they_do(read_json: ReadJson) -> None:
    (cost,) = read_json("swarm", "--volunteers", "2", "--steps", "3", "--member-ms", "2")["costs"]
    # Of 500 members a second that each can do; a step takes what a group takes at least.
    assert 0 < cost["members_per_s_each"] <= 500
    assert cost["evaluating"] == cost["members_per_s_each"] * 2e-3
    assert cost["step_ms"]["low"] >= 16 * 2 * 0.9

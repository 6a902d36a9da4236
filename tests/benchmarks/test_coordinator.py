from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]


def test_a_result_costs_a_crowd_what_it_costs_a_few(read_json: ReadJson) -> None:
    report = read_json("coordinator", "--volunteers", "8", "800", "--steps", "9")
    assert [cost["volunteers"] for cost in report["costs"]] == [8, 800]
    few, crowd = report["costs"]
    # Going through all leases for each Result would be thirty times as much.
    assert 0 < crowd["result_us"]["low"] < 5 * few["result_us"]["median"]
    assert 0 < crowd["end_us"]["median"] < 5 * few["end_us"]["median"]
    assert crowd["tick_us"]["median"] > 0


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("coordinator", "--volunteers", "2", "3", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["2", "3"]


def test_a_volunteer_alone_is_refused(run_benchmark: Run) -> None:
    done = run_benchmark("coordinator", "--volunteers", "1")
    assert done.returncode == 2
    assert "expected 2 or more, got 1" in done.stderr


def test_help_names_the_flags(run_benchmark: Run) -> None:
    done = run_benchmark("coordinator", "--help")
    assert done.returncode == 0
    assert "--volunteers" in done.stdout

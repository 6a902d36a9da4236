from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]


def test_a_line_costs_a_bare_loop_something(read_json: ReadJson) -> None:
    report = read_json("bare_lines", "--lines", "20", "--steps", "50")
    assert report["lines"] == 20
    assert 0 < report["us_each"]["low"] <= report["us_each"]["median"]


def test_people_get_a_sentence(run_benchmark: Run) -> None:
    done = run_benchmark("bare_lines", "--lines", "3", "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert "3 lines" in done.stdout

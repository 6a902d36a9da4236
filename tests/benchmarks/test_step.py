from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--hidden-size", "8", "--population-limit", "128", "--rounds", "2")


def test_report_is_one_object_with_the_documented_keys(read_json: ReadJson) -> None:
    report = read_json("step", *TINY, "--whole-steps", "3", "--in-process-steps", "3")
    assert set(report) == {
        "benchmark",
        "machine",
        "config",
        "n_parameters",
        "bytes_up",
        "bytes_down",
        "parts",
        "sum_of_everything_else_ms",
        "whole_steps",
        "target_ms",
        "in_process",
    }
    assert {part["kind"] for part in report["parts"]} == {"evaluation", "estimate", "else"}
    assert all(part["ms"]["median"] > 0 for part in report["parts"])
    assert report["sum_of_everything_else_ms"] == pytest.approx(
        sum(part["in_turn"] * part["ms"]["median"] for part in report["parts"] if part["kind"] == "else")
    )
    assert (report["config"]["task"], report["config"]["hidden_size"]) == ("rnn", 8)
    assert report["bytes_up"] + report["bytes_down"] <= 1.2 * (4 * 128 + 128 + 200)
    whole = report["whole_steps"]
    assert set(whole) == {"steps", "period_ms", "evaluation_ms", "estimate_ms", "everything_else_ms"}
    assert whole["steps"] == 3
    assert whole["period_ms"]["median"] > whole["evaluation_ms"]["median"] > 0
    shares = {share["name"]: share["ms"]["median"] for share in report["in_process"]}
    assert min(shares["trials"], shares["optimizer, both replicas"], shares["all else"]) > 0


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("step", *TINY, "--whole-steps", "0", "--in-process-steps", "0")
    assert done.returncode == 0, done.stderr
    assert "journal: append and sync" in done.stdout


def test_help_names_the_flags(run_benchmark: Run) -> None:
    done = run_benchmark("step", "--help")
    assert done.returncode == 0
    assert "--whole-steps" in done.stdout

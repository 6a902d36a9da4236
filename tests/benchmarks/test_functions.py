from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--seeds", "1", "2", "--evaluations", "640", "--no-peers")


def test_losses_of_both_functions_are_reported(read_json: ReadJson) -> None:
    report = read_json("functions", *TINY)
    assert set(report) == {"benchmark", "machine", "peers", "results"}
    assert report["peers"] == {}
    runs = report["results"]
    assert [(run["function"], run["learner"], run["seed"]) for run in runs] == [
        (function, "fedlearn", seed) for function in ("Rosenbrock", "network") for seed in (1, 2)
    ]
    assert [run["parameters"] for run in runs] == [100, 100, 201, 201]
    for run in runs:
        assert set(run) == {
            "function",
            "learner",
            "seed",
            "parameters",
            "evaluations",
            "start_loss",
            "loss",
            "seconds",
            "settings",
        }
        assert run["evaluations"] == 640
        assert run["loss"] < run["start_loss"]
    assert runs[0]["start_loss"] == 99 * (100 * 0.25**2 + 0.5**2)


def test_people_get_a_line_for_all_seeds_of_a_learner(run_benchmark: Run) -> None:
    done = run_benchmark("functions", *TINY, "--functions", "network")
    assert done.returncode == 0, done.stderr
    assert "no other library" in done.stdout
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("network")] == ["2"]

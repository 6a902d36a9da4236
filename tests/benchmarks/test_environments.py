from collections.abc import Callable
from importlib.util import find_spec
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
    pytest.mark.skipif(find_spec("gymnasium") is None, reason="needs gymnasium"),
]

TINY = ("--environments", "CartPole-v1", "--seeds", "1", "--no-peers", "--episodes")


def test_returns_along_the_episodes_are_reported(read_json: ReadJson) -> None:
    report = read_json("environments", *TINY, "150")
    assert set(report) == {"benchmark", "machine", "evotorch", "results"}
    assert report["evotorch"] is None
    (run,) = report["results"]
    assert set(run) == {
        "environment",
        "learner",
        "seed",
        "population",
        "settings",
        "solved_return",
        "solved_after",
        "looks",
    }
    assert (run["environment"], run["learner"], run["seed"]) == ("CartPole-v1", "fedlearn", 1)
    assert [look["episodes"] for look in run["looks"]] == [0, 64, 128]
    assert all(1 <= look["mean_return"] <= 500 for look in run["looks"])


def test_people_get_a_table_that_says_what_is_missing(run_benchmark: Run) -> None:
    done = run_benchmark("environments", *TINY, "1")
    assert done.returncode == 0, done.stderr
    assert "evotorch is left out" in done.stdout
    assert "CartPole-v1 by fedlearn" in done.stdout

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

ReadJson = Callable[..., dict[str, Any]]


def test_a_policy_is_judged_along_its_episodes(read_json: ReadJson) -> None:
    report = read_json(
        "environments", "--environments", "CartPole-v1", "--seeds", "1", "--no-peers", "--episodes", "150"
    )
    assert report["evotorch"] is None
    (run,) = report["runs"]
    assert (run["environment"], run["learner"], run["seed"]) == ("CartPole-v1", "fedlearn", 1)
    assert (run["population"], run["episodes"]) == (64, 128)
    assert 1 <= run["last_return"] <= run["best_return"] <= 500


def test_large_steps_are_beside_our_defaults_at_the_same_episodes(read_json: ReadJson) -> None:
    report = read_json("environments", "--untuned", "--environments", "CartPole-v1", "--seeds", "1", "--episodes", "64")
    defaults, large = report["runs"]
    assert (defaults["learner"], large["learner"]) == ("fedlearn", "fedlearn, large steps")
    assert (defaults["population"], large["population"]) == (64, 8)
    assert defaults["episodes"] == large["episodes"] == 64
    assert report["evotorch"] is None  # it did not run

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
    assert (run["population"], run["episodes"]) == (8, 144)
    assert 1 <= run["last_return"] <= run["best_return"] <= 500
    (summary,) = report["summaries"]
    assert (summary["best_worst"], summary["last_median"]) == (run["best_return"], run["last_return"])
    assert summary["solved"] == ("0 of 1" if run["solved_after"] is None else "1 of 1")

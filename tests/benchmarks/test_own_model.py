from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_gradients_of_fedlearn_stand_beside_adam(read_json: ReadJson) -> None:
    report = read_json("own_model", "--models", "mlp", "--seconds", "0.2", "--shares", "1", "--rates", "0.01")
    adam, ours = report["rows"]
    assert (adam["learner"], ours["learner"]) == ("Adam, 0.01", "fedlearn")
    for row in (adam, ours):
        assert row["steps"] > 0
        assert 0 < row["loss"] < 3
        assert 0 < row["accuracy"] <= 1


def test_seconds_to_an_accuracy_stand_beside_adams(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "30", "--rates", "0.01", "--accuracy", "0.8")
    adam, ours = read_json("own_model", *given)["times"]
    assert (adam["learner"], ours["learner"]) == ("Adam, 0.01", "fedlearn")
    assert all(row["steps"] > 0 and row["seconds"] > 0 for row in (adam, ours))


def test_an_accuracy_that_nobody_reaches_has_no_seconds(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "0.1", "--rates", "0.01", "--accuracy", "1.1")
    assert [row["seconds"] for row in read_json("own_model", *given)["times"]] == [None, None]


def test_pytorchs_muon_falls_beside_adam(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "0.2", "--shares", "1", "--rates", "0.01", "--falling")
    learners = [row["learner"] for row in read_json("own_model", *given)["rows"]]
    assert learners == ["Adam, 0.01", "Adam, 0.01, falling", "Muon of PyTorch, falling", "fedlearn"]

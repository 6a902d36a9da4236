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

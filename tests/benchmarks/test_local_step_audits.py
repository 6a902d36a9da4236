from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_machines_that_round_otherwise_are_hardly_apart_after_a_step(read_json: ReadJson) -> None:
    (row,) = read_json("local_step_audits", "--models", "mlp", "--local-steps", "2", "--ways", "2")["rows"]
    assert (row["model"], row["local_steps"], row["ways"]) == ("mlp", 2, 2)
    assert row["mean_of_sums"] <= row["greatest_of_sums"] < 1
    assert row["mean_of_losses"] <= row["greatest_of_losses"] < 1

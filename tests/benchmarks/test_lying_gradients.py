from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_lies_stay_below_the_tolerance_or_are_far_above_it(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--steps", "22", "--lies", "nothing", "flipped", "planted")
    nobody, flipped, planted = read_json("lying_gradients", *given)["rows"]
    assert (nobody["liars"], nobody["off_by"], nobody["named"]) == (0, 0, 0)
    assert (flipped["liars"], flipped["off_by"]) == (1, pytest.approx(100))
    assert 0.8 < planted["off_by"] <= 0.95
    assert all(row["honest_named"] == 0 for row in (nobody, flipped, planted))

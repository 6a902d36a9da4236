from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_lies_stay_below_the_tolerance(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--steps", "21", "--lies", "nothing", "planted")
    nobody, planted = read_json("lying_gradients", *given)["rows"]
    assert (nobody["liars"], nobody["off_by"], nobody["named"]) == (0, 0, 0)
    assert planted["liars"] == 1
    assert 0.8 < planted["off_by"] <= 0.95
    assert nobody["honest_named"] == planted["honest_named"] == 0

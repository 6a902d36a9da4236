import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.server.training.no_loss import cause
from fedlearn.tasks.blocks import Columns

NAN, INFINITE = np.full(4, np.nan, np.float32), np.full(4, np.inf, np.float32)
WEIGHTS = {"head.weight": np.ones(3, np.float32)}
ROWS = np.zeros((5, 2), np.float32)
BROKEN_ROWS = ROWS.copy()
BROKEN_ROWS[[1, 3], 0] = np.nan, np.inf


@pytest.mark.parametrize(
    ("losses", "data", "expected"),
    [
        (
            NAN,
            {"x": BROKEN_ROWS, "y": np.arange(5), "z": ROWS},
            "losses are NaN, and the data hold NaN or infinity: x in 2 of 5 rows; take",
        ),
        (NAN, {"x": ROWS}, "losses are NaN, though weights and data are finite; look for a div"),
        (INFINITE, {}, "losses are infinite, though weights and data are finite"),
        (np.full(4, 1e30, np.float32), {"x": BROKEN_ROWS}, "a loss such as 1e+30 is beyond 1e+12, and counts"),
        (np.array([np.nan, 1.0], np.float32), {}, "the server's own are: compare what volunteers compute with"),
    ],
    ids=["data", "nan", "infinite", "large", "elsewhere"],
)
def test_cause_of_losses_that_are_none_is_named(losses: NDArray[np.float32], data: Columns, expected: str) -> None:
    assert cause(losses, data, WEIGHTS).startswith(expected)


def test_weights_that_are_no_numbers_come_before_data() -> None:
    weights = {**WEIGHTS, "head.bias": np.array([np.nan], np.float32)}
    assert "the weights head.bias; begin" in cause(NAN, {"x": BROKEN_ROWS}, weights)

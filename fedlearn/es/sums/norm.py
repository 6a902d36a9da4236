"""The length of a sum of gradients."""

import math

import numpy as np
from numpy.typing import NDArray

PIECE = 2**14
"""Numbers handled at once: a copy of all would be memory that the system allocates anew each time, which takes longer
than the arithmetic."""


def l2_norm(numbers: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """The Euclidean length of a vector."""
    squares = 0.0
    for begin in range(0, numbers.size, PIECE):
        piece = numbers[begin : begin + PIECE].astype(np.float64)
        # BLAS is avoided: its threads would take the volunteers' processors for very little.
        squares += float(np.square(piece, out=piece).sum())
    return math.sqrt(squares)

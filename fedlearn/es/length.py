"""The length of a sum of gradients."""

import math

import numpy as np
from numpy.typing import NDArray


def length_of(numbers: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """The Euclidean length of a vector."""
    # BLAS is avoided: its threads would take the volunteers' processors for very little.
    return math.sqrt(float(np.square(numbers.astype(np.float64)).sum()))

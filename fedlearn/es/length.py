"""How long a sum of gradients is."""

import math

import numpy as np
from numpy.typing import NDArray


def length_of(numbers: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """The root of the sum of squares."""
    # Not by BLAS, whose threads would take the volunteers' processors for so little.
    return math.sqrt(float(np.square(numbers.astype(np.float64)).sum()))

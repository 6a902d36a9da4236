"""Moments of what members observe, by which a policy's observations stay normalised while it learns.

For each group a volunteer reports how many observations its members made, and for each number of an observation the
sum and the sum of squares, in units of the deviation in force. They are whole numbers, so that an audit of a group
finds them again, and none can exceed what its count allows. The server makes one change of mean and deviation of all
groups' moments, which travels in the Update.

Source: the parallel update of Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance" (1983).
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]

UNIT = 256
"""Steps in which a deviation is counted."""

MOST_DEVIATIONS = 32
"""The number of deviations from the mean at which a number is clipped before it is counted."""

MOST_OBSERVATIONS = 2**36
"""The most observations of a group: squares then fit 63 bits."""

MOST_SHARE = 4.0
"""The most observations that a group counts for, in multiples of the median group: a false count moves little."""

START_WEIGHT = 1000.0
"""The number of observations that mean and deviation stand for when a run begins."""

LEAST_FACTOR = 0.5
"""The least factor on a deviation in a step."""

NO_MOMENTS: Int64Array = np.zeros(0, dtype=np.int64)


class Renormalization(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """A change of mean and deviation of n numbers."""

    moves: Float32Array
    """The moves of the means, in deviations."""
    factors: Float32Array
    """The factors on the deviations."""
    weight: float
    """The number of observations that mean and deviation stand for *after* this step; the strategy's state."""

    def check(self, n_numbers: int) -> None:
        """Checks that it changes so many numbers.

        Raises:
            ValueError: it does not.
        """
        sizes = self.moves.size, self.factors.size
        if sizes != (n_numbers, n_numbers):
            raise ValueError(f"renormalization: expected {n_numbers} moves and factors, got {sizes[0]} and {sizes[1]}")


def width(n_numbers: int) -> int:
    """Length of a group's moments: the count, then the sums, then the sums of squares; 0 where nothing is observed."""
    return 1 + 2 * n_numbers if n_numbers else 0


def moments_bytes(n_numbers: int) -> int:
    """Bytes of a group's moments."""
    return NO_MOMENTS.itemsize * width(n_numbers)


def counted(deviations: NDArray[np.floating]) -> Int64Array:
    """Numbers in whole units, clipped; what is not finite counts as the mean."""
    finite = np.where(np.isfinite(deviations), deviations, 0.0)
    units: Int64Array = np.rint(np.clip(finite, -MOST_DEVIATIONS, MOST_DEVIATIONS) * UNIT).astype(np.int64)
    return units


def renormalization_of(moments: Int64Array, weight: float) -> Renormalization:
    """The change that follows from all groups' moments, [groups, width], of a mean and deviation of this weight."""
    n_numbers = moments.shape[1] // 2
    counts = moments[:, 0].astype(np.float64)
    # The lower of two middle values: of two groups, the one that observed less is believed.
    most = MOST_SHARE * float(np.sort(counts)[(len(counts) - 1) // 2])
    shares = np.where(counts > most, most / np.maximum(counts, 1.0), 1.0)
    total = (moments * shares[:, np.newaxis]).sum(axis=0)
    n, sums, squares = total[0], total[1 : 1 + n_numbers] / UNIT, total[1 + n_numbers :] / UNIT**2
    moves = sums / (weight + n)
    # Before, the mean is 0 and the mean square 1: deviations are counted from the one in units of the other.
    factors = np.sqrt(np.maximum((weight + squares) / (weight + n) - moves**2, LEAST_FACTOR**2))
    return Renormalization(moves.astype(np.float32), factors.astype(np.float32), float(weight + n))


def complaint_of(moments: Int64Array, *, n_groups: int, n_numbers: int) -> str:
    """The reason for which no members can have these moments, [n_groups * width]; empty where some can."""
    if moments.shape != (n_groups * width(n_numbers),):
        return (
            f"moments: expected {width(n_numbers)} for each of {n_groups} groups, got {moments.size}; "
            "the volunteer must normalise as the run does"
        )
    if not n_numbers:
        return ""
    rows = moments.reshape(n_groups, -1)
    counts, sums, squares = rows[:, :1], rows[:, 1 : 1 + n_numbers], rows[:, 1 + n_numbers :]
    if (counts < 0).any() or (counts > MOST_OBSERVATIONS).any():
        return f"moments: expected counts from 0 to {MOST_OBSERVATIONS}, got {counts.min()} to {counts.max()}"
    most = MOST_DEVIATIONS * UNIT
    if (np.abs(sums.astype(np.float64)) > most * counts).any():
        return f"moments: expected sums up to {most} an observation, got greater ones"
    if (squares < 0).any() or (squares > most**2 * counts).any():
        return f"moments: expected squares from 0 up to {most**2} an observation, got others"
    # Rounded to doubles, equal sides may seem to differ in the last digits.
    if (sums.astype(np.float64) ** 2 > squares.astype(np.float64) * counts * (1.0 + 1e-9)).any():
        return "moments: expected squares of the sums up to the count times the sums of squares, got greater ones"
    return ""

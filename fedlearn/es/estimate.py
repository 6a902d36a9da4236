"""A sum of gradient estimates as it travels: a byte a parameter, and a shift a row.

Rounding to the 8 highest bits of a row's greatest number adds far less noise than the estimate has of its own; a row of
a rare token is small as a whole, and keeps its precision. What bytes stand for are integers, which add up exactly.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout

Int8Array = NDArray[np.int8]
UInt8Array = NDArray[np.uint8]
Int32Array = NDArray[np.int32]
Integers = NDArray[np.int32] | NDArray[np.int64]

MAX_SHIFT = 24
"""127 << 24 is the greatest number that fits 32 bits."""


class CodedEstimate(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """Parameter i of a row counts `numbers[i] << shift of the row`; both empty where there is no estimate."""

    numbers: Int8Array
    """[n_parameters]"""
    shifts: UInt8Array
    """[rows]: a matrix has its rows, every element of a vector is a row of its own."""


NO_ESTIMATE = CodedEstimate(np.zeros(0, dtype=np.int8), np.zeros(0, dtype=np.uint8))


def encode_estimate(layout: ParameterLayout, estimate: Integers) -> CodedEstimate:
    """The integers [n_parameters], rounded to a byte each; what 32 bits don't hold is cut."""
    lengths = layout.row_lengths
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    greatest = np.maximum.reduceat(np.abs(estimate), starts)
    # The least shift with which the row's greatest number still rounds to at most 127.
    _, exponents = np.frexp(greatest / 127.5)
    shifts = np.clip(exponents, 0, MAX_SHIFT)
    scaled = np.rint(np.ldexp(estimate.astype(np.float64), -np.repeat(shifts, lengths)))
    return CodedEstimate(np.clip(scaled, -127, 127).astype(np.int8), shifts.astype(np.uint8))


def decode_estimate(layout: ParameterLayout, coded: CodedEstimate) -> Int32Array:
    """The integers [n_parameters] that the bytes stand for.

    Raises ValueError for the estimate of another model, and for shifts beyond 32 bits.
    """
    lengths = layout.row_lengths
    if coded.numbers.size != layout.size or coded.shifts.size != len(lengths):
        raise ValueError(
            f"estimate: expected {layout.size} numbers and {len(lengths)} shifts, "
            f"got {coded.numbers.size} and {coded.shifts.size}"
        )
    if coded.shifts.max() > MAX_SHIFT:
        raise ValueError(f"estimate: expected shifts up to {MAX_SHIFT}, got {coded.shifts.max()}")
    return coded.numbers.astype(np.int32) << np.repeat(coded.shifts.astype(np.int32), lengths)

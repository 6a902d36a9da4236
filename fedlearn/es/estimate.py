"""A sum of gradient estimates as it travels: bytes for each parameter, and a code a row that says how to read them.

A rounded row has a byte a parameter and a shift. Rounding to the 8 highest bits of a row's greatest number adds far
less noise than the estimate has of its own; a row of a rare token is small as a whole, and keeps its precision. An
exact row has as many bytes a parameter as its greatest number needs, none where all are zero. What bytes stand for are
integers, which add up exactly.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout

Int8Array = NDArray[np.int8]
UInt8Array = NDArray[np.uint8]
Int32Array = NDArray[np.int32]
Integers = NDArray[np.int32] | NDArray[np.int64]

MAX_UTILITY = 127

MAX_SHIFT = 24
"""127 << 24 is the greatest number that fits 32 bits."""

EXACT = 128
"""Plus the bytes of a parameter, 0 to 4: the code of an exact row."""

MAX_EXACT_BYTES = 4


class CodedEstimate(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """Parameter i of a rounded row counts `numbers[i] << shift of the row`; both empty where there is no estimate."""

    numbers: Int8Array
    """Bytes of all parameters, in order: one each in a rounded row; of an exact row's integers the low ones, the lowest
    first, in two's complement."""
    shifts: UInt8Array
    """[rows]: 0 to 24, or EXACT and above. A matrix has its rows, every element of a vector is a row of its own."""

    @property
    def is_there(self) -> bool:
        """Whether there is an estimate: one of zeros may have no bytes of numbers."""
        return self.shifts.size > 0

    @property
    def n_bytes(self) -> int:
        """Of all its arrays."""
        return self.numbers.nbytes + self.shifts.nbytes


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

    Raises ValueError for the estimate of another model, and for numbers beyond 32 bits.
    """
    lengths, codes = layout.row_lengths, coded.shifts
    if codes.size != len(lengths):
        raise ValueError(
            f"estimate: expected {layout.size} parameters and {len(lengths)} shifts, "
            f"got {coded.numbers.size} bytes and {codes.size}"
        )
    is_exact = codes >= EXACT
    widths = np.where(is_exact, codes - EXACT, 1).astype(np.uint8)
    shifts = np.where(is_exact, 0, codes)
    if shifts.max() > MAX_SHIFT or widths.max() > MAX_EXACT_BYTES:
        raise ValueError(
            f"estimate: expected shifts up to {MAX_SHIFT}, or {EXACT} and up to {MAX_EXACT_BYTES} bytes, "
            f"got up to {codes.max()}"
        )
    if coded.numbers.size != (n_bytes := int((widths * lengths).sum())):
        raise ValueError(f"estimate: expected {n_bytes} bytes of numbers by its shifts, got {coded.numbers.size}")
    if not is_exact.any():
        return coded.numbers.astype(np.int32) << np.repeat(shifts.astype(np.int32), lengths)
    numbers = _widened(coded.numbers, np.repeat(widths, lengths))
    return numbers << np.repeat(shifts.astype(np.int32), lengths)


def encode_exactly(layout: ParameterLayout, estimate: Integers) -> CodedEstimate:
    """The integers [n_parameters], every one as it is. Raises ValueError for what 32 bits don't hold."""
    lengths = layout.row_lengths
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    # The bits of a number without its sign: -128 needs as many as 127.
    magnitudes = np.where(estimate < 0, ~estimate, estimate)
    greatest = np.maximum.reduceat(magnitudes, starts)
    if greatest.max(initial=0) > np.iinfo(np.int32).max:
        raise ValueError(f"estimate: expected integers of 32 bits, got {greatest.max()}; lower population_limit")
    widths = np.searchsorted([0, 2**7, 2**15, 2**23], greatest, side="right").astype(np.uint8)
    # -1 has no bits but its sign, which takes a byte.
    widths[(widths == 1) & ~np.logical_or.reduceat(estimate != 0, starts)] = 0
    octets = estimate.astype("<i4").view(np.uint8).reshape(-1, MAX_EXACT_BYTES)
    per_parameter = np.repeat(widths, lengths)
    if (per_parameter == per_parameter[0]).all():
        kept = octets[:, : per_parameter[0]].reshape(-1)
    else:
        kept = octets[np.arange(MAX_EXACT_BYTES) < per_parameter[:, None]]
    return CodedEstimate(kept.view(np.int8), widths + np.uint8(EXACT))


def exact_width(n_members: int, rank: int) -> int:
    """Bytes that a parameter of an exact estimate of so many members may take."""
    return min((MAX_UTILITY * n_members * max(rank, 1)).bit_length() // 8 + 1, MAX_EXACT_BYTES)


def _widened(numbers: Int8Array, widths: UInt8Array) -> Int32Array:
    """Of each parameter so many bytes, as an integer."""
    octets = np.zeros((widths.size, MAX_EXACT_BYTES), dtype=np.uint8)
    missing = MAX_EXACT_BYTES - widths
    # In the high bytes, so that the shift back brings the sign along.
    if (widths == widths[0]).all():
        octets[:, missing[0] :] = numbers.view(np.uint8).reshape(widths.size, widths[0])
    else:
        octets[np.arange(MAX_EXACT_BYTES) >= missing[:, None]] = numbers.view(np.uint8)
    high: Int32Array = octets.view("<i4").reshape(-1).astype(np.int32)
    return high >> (8 * np.minimum(missing, MAX_EXACT_BYTES - 1)).astype(np.int32)

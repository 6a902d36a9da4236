"""The form in which sums of gradient estimates travel: bytes of the parameters, and a code for each row.

A rounded row has a byte for each parameter and a shift. Rounding to the 8 highest bits of the row's greatest number
adds far less noise than the estimate has anyway; the row of a rare token is small as a whole, and keeps its precision.
A packed row has four bits for each parameter and a step, the least of which seven hold the greatest number. An exact
row has as many bytes for each parameter as its greatest number needs, none where all are zero. All stand for integers,
which add up exactly.
"""

from typing import TypeVar, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from es_core import decode_rows, encode_rows, pack_rows, random_words, round_rows
from fedlearn.es.layout import ParameterLayout

Int8Array = NDArray[np.int8]
UInt8Array = NDArray[np.uint8]
Int32Array = NDArray[np.int32]
Integers = NDArray[np.int32] | NDArray[np.int64]
Bytes = TypeVar("Bytes", Int8Array, UInt8Array)

MAX_UTILITY = 127

MAX_EXACT_BYTES = 4

EXACT_CODE = 128
"""The least code of an exact row; what a code exceeds it by is the number of bytes of a parameter."""

PACKED_CODE = 136
"""The least code of a packed row; code 136 + 4e + m has the step (4 + m) 2^e."""


class CodedEstimate(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """An estimate as bytes and a code for each row; both arrays are empty without an estimate.

    Parameter i of a rounded row is `numbers[i] << shift of the row`.
    """

    numbers: Int8Array
    """The bytes of all parameters in order: one each in a rounded row; one for two in a packed row; in an exact row,
    integers in two's complement with the lowest byte first."""
    shifts: UInt8Array
    """The code of each row [rows]: the shift of a rounded row, 0 to 24, or 128 plus the bytes of a parameter, 0 to 4,
    of an exact row, or that of a packed row, 136 to 239. Each element of a vector is a row of its own."""

    @property
    def is_there(self) -> bool:
        """True if there is an estimate; an estimate of zeros may have no bytes in `numbers`."""
        return self.shifts.size > 0

    @property
    def is_packed(self) -> bool:
        """True if rows that are longer than a number are packed."""
        return bool((self.shifts >= PACKED_CODE).any())

    @property
    def is_exact(self) -> bool:
        """True if there are exact rows, as in sums that a relay adds."""
        return bool(((self.shifts >= EXACT_CODE) & (self.shifts < PACKED_CODE)).any())

    @property
    def bits(self) -> int:
        """Bits of the greatest number that rounded and packed rows can hold, without its sign."""
        return max(map(_bits_of, np.unique(self.shifts).tolist()), default=0)

    @property
    def n_bytes(self) -> int:
        """Number of bytes in both arrays."""
        return self.numbers.nbytes + self.shifts.nbytes


NO_ESTIMATE = CodedEstimate(np.zeros(0, dtype=np.int8), np.zeros(0, dtype=np.uint8))


def encode_estimate(layout: ParameterLayout, estimate: Integers) -> CodedEstimate:
    """Encodes the integers [n_parameters], rounded to a byte each; those beyond 32 bits are clipped."""
    return CodedEstimate(*encode_rows(estimate.astype(np.int64, copy=False), layout.row_lengths, exact=False))


def encode_randomly(layout: ParameterLayout, estimate: Integers, words: NDArray[np.uint32]) -> CodedEstimate:
    """Encodes the integers [n_parameters], rounded to a byte each, up or down by random words [n_parameters].

    What is decoded has the integers as its mean; those beyond 32 bits are clipped.
    """
    return CodedEstimate(*round_rows(estimate.astype(np.int64, copy=False), words, layout.row_lengths))


def rounding_variance(layout: ParameterLayout, coded: CodedEstimate) -> float:
    """The variance that random rounding to bytes adds to an estimate, all parameters together, at its steps; that of
    rounding to the nearest is half of it."""
    steps = np.where((coded.shifts > 0) & (coded.shifts < EXACT_CODE), 2.0 ** (coded.shifts % EXACT_CODE), 0.0)
    return float((layout.row_lengths * steps**2).sum() / 6.0)


def encode_packed(layout: ParameterLayout, estimate: Integers, random: UInt8Array) -> CodedEstimate:
    """Encodes the integers [n_parameters], rounded to four bits each, up or down by random bytes [n_parameters or
    more].

    What is decoded has the integers as its mean; those beyond 32 bits are clipped. A row of one number has a byte.
    """
    return CodedEstimate(*pack_rows(estimate.astype(np.int64, copy=False), random, layout.row_lengths))


@final
class Dither:
    """The random numbers by which the sum of members from the first one on is rounded, one for each parameter."""

    def __init__(self, run_seed: int, step: int, first_member: int, *, bits: int) -> None:
        """Sums are rounded to so many bits, 4 or 8, for each parameter."""
        self._seed, self._step = int(random_words(run_seed, step, first_member, 1, 1)[0, 0]), step
        self._bits = bits

    def encode(self, layout: ParameterLayout, estimate: Integers, begin: int = 0) -> CodedEstimate:
        """Encodes the integers [n_parameters], rounded up or down; they are those from parameter `begin` on."""
        if self._bits == 4:
            return encode_packed(layout, estimate, random_bytes(self._seed, self._step, estimate.size, begin))
        words: NDArray[np.uint32] = random_words(self._seed, self._step, 0, 1, estimate.size, begin)[0]
        return encode_randomly(layout, estimate, words)


def random_bytes(seed: int, step: int, count: int, begin: int = 0) -> UInt8Array:
    """The random bytes of a step from number `begin` on, `count` or a few more: those of the words of stream 0 under
    this seed, the lowest first."""
    first = begin // 4
    words: NDArray[np.uint32] = random_words(seed, step, 0, 1, -(-(begin + count) // 4) - first, first)[0]
    return words.astype("<u4", copy=False).view(np.uint8)[begin % 4 :]


def encode_exactly(layout: ParameterLayout, estimate: Integers) -> CodedEstimate:
    """Encodes the integers [n_parameters] exactly.

    Raises:
        ValueError: an integer does not fit into 32 bits.
    """
    try:
        return CodedEstimate(*encode_rows(estimate.astype(np.int64, copy=False), layout.row_lengths, exact=True))
    except ValueError as error:
        greatest = np.abs(estimate).max(initial=0)
        raise ValueError(f"estimate: expected integers of 32 bits, got {greatest}; lower population_limit") from error


def decode_estimate(layout: ParameterLayout, coded: CodedEstimate) -> Int32Array:
    """Decodes an estimate into its integers [n_parameters].

    Raises:
        ValueError: the estimate is of another model, or malformed.
    """
    try:
        return decode_rows(coded.numbers, coded.shifts, layout.row_lengths, layout.size)
    except ValueError as error:
        raise ValueError(f"estimate of {layout.size} parameters: {error}") from error


def estimate_of_rows(layout: ParameterLayout, rows: list[slice], coded: CodedEstimate) -> CodedEstimate:
    """Some rows of an estimate of the layout.

    Raises:
        ValueError: the estimate is of another model.
    """
    codes = coded.shifts
    if rows == [slice(0, layout.row_lengths.size)]:
        return coded
    if codes.size != layout.row_lengths.size:
        raise ValueError(
            f"estimate of {layout.size} parameters: codes: expected one a row, {layout.row_lengths.size}, "
            f"got {codes.size}"
        )
    ends = np.cumsum(_row_bytes(codes.astype(np.int64), layout.row_lengths))
    if coded.numbers.size != (n_bytes := int(ends[-1]) if ends.size else 0):
        raise ValueError(
            f"estimate of {layout.size} parameters: numbers: expected {n_bytes} bytes by the codes, "
            f"got {coded.numbers.size}"
        )
    begins = np.append(0, ends)
    numbers = [coded.numbers[begins[interval.start] : begins[interval.stop]] for interval in rows]
    return CodedEstimate(_in_one(numbers, coded.numbers), _in_one([codes[interval] for interval in rows], codes))


def exact_width(n_members: int, rank: int) -> int:
    """The most bytes that a parameter of the exact sum of `n_members` members needs."""
    return min((MAX_UTILITY * n_members * max(rank, 1)).bit_length() // 8 + 1, MAX_EXACT_BYTES)


def packed_bytes(layout: ParameterLayout) -> int:
    """Bytes of a packed estimate."""
    return int(((layout.row_lengths + 1) // 2).sum()) + layout.row_lengths.size


def _row_bytes(codes: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    exact = np.where(codes < EXACT_CODE, 1, codes - EXACT_CODE) * lengths
    return np.where(codes < PACKED_CODE, exact, (lengths + 1) // 2)


def _bits_of(code: int) -> int:
    if code < PACKED_CODE:
        return code + 7
    exponent, mantissa = divmod(code - PACKED_CODE, 4)
    return exponent + (7 * (4 + mantissa)).bit_length()


def _in_one(pieces: list[Bytes], whole: Bytes) -> Bytes:
    return pieces[0] if len(pieces) == 1 else np.concatenate([whole[:0], *pieces])

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core

Int64Array = NDArray[np.int64]
Rows = list[list[int]]

integers = st.integers(0, 31).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1))
wide = integers | st.integers(-(2**63), 2**63 - 1)


def rows_of(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Rows]:
    return st.lists(st.lists(numbers, min_size=1, max_size=9), min_size=1, max_size=5)


def flat(rows: Rows) -> tuple[Int64Array, Int64Array]:
    """All numbers, and the length of each row."""
    return np.array([n for row in rows for n in row], dtype=np.int64), np.array([len(row) for row in rows])


def plain_shift(row: list[int]) -> int:
    return next((s for s in range(24) if all(abs(round(Fraction(n, 2**s))) <= 127 for n in row)), 24)


def plain_width(row: list[int]) -> int:
    return next(
        w for w in range(5) if all(n == 0 if w == 0 else -(2 ** (8 * w - 1)) <= n < 2 ** (8 * w - 1) for n in row)
    )


@given(rows_of(integers))
def test_exact_rows_are_the_bytes_of_their_numbers(rows: Rows) -> None:
    numbers, lengths = flat(rows)
    coded, codes = es_core.encode_rows(numbers, lengths, exact=True)
    widths = [plain_width(row) for row in rows]
    assert codes.tolist() == [128 + width for width in widths]
    octets = [n.to_bytes(w, "little", signed=True) for row, w in zip(rows, widths, strict=True) for n in row if w]
    assert coded.tobytes() == b"".join(octets)
    assert es_core.decode_rows(coded, codes, lengths, numbers.size).tolist() == numbers.tolist()


@given(rows_of(wide))
@example([[127, 0], [128], [-255], [255]])
@example([[254], [510], [2**63 - 1, -(2**63)], [127 << 24], [0]])
@example([[384, 640, -384, -640, 30000]])
def test_rounded_rows_are_numbers_to_the_nearest_of_the_least_shift(rows: Rows) -> None:
    numbers, lengths = flat(rows)
    coded, codes = es_core.encode_rows(numbers, lengths, exact=False)
    shifts = [plain_shift(row) for row in rows]
    assert codes.tolist() == shifts
    plain = [
        max(-127, min(127, round(Fraction(n, 2**shift)))) for row, shift in zip(rows, shifts, strict=True) for n in row
    ]
    assert coded.tolist() == plain
    decoded = es_core.decode_rows(coded, codes, lengths, numbers.size)
    assert decoded.tolist() == [n << s for n, s in zip(plain, np.repeat(shifts, lengths).tolist(), strict=True)]


@pytest.mark.usefixtures("isa")
def test_long_rows_are_rounded_alike_on_every_instruction_set() -> None:
    # Rows longer than any vector register, and what is left behind a whole number of those; many halves.
    lengths = [1, 7, 8, 64, 129, 1000]
    generator = np.random.default_rng(1)
    rows = [generator.integers(-(2**bits), 2**bits, n).tolist() for bits, n in enumerate(lengths, start=6)]
    numbers, row_lengths = flat(rows)
    coded, codes = es_core.encode_rows(numbers, row_lengths, exact=False)
    assert codes.tolist() == [plain_shift(row) for row in rows]
    divisors = np.repeat(2.0 ** codes.astype(np.float64), row_lengths)
    assert coded.tolist() == np.clip(np.rint(numbers / divisors), -127, 127).tolist()


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_exact_rows_hold_32_bits(number: int) -> None:
    with pytest.raises(ValueError, match="numbers: expected integers of 32 bits"):
        es_core.encode_rows(np.array([0, number]), np.array([2]), exact=True)


@pytest.mark.parametrize(
    ("lengths", "complaint"),
    [
        ([2, 2], "expected rows that make up 3"),
        ([2], "expected rows that make up 3, got 2"),
        ([3, 0], "expected rows that make up 3"),
        ([4, -1], "expected rows that make up 3"),
        ([2**62, 2**62], "expected rows that make up 3"),
    ],
)
def test_rows_that_are_not_those_of_the_numbers_are_refused(lengths: list[int], complaint: str) -> None:
    numbers, rows = np.zeros(3, dtype=np.int64), np.array(lengths)
    with pytest.raises(ValueError, match=complaint):
        es_core.encode_rows(numbers, rows, exact=True)
    with pytest.raises(ValueError, match=complaint):
        es_core.decode_rows(np.zeros(3, dtype=np.int8), np.zeros(rows.size, dtype=np.uint8), rows, 3)


@pytest.mark.parametrize("code", [25, 127, 133, 255])
def test_what_is_no_code_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="codes: expected shifts up to 24, or 128 and up to 4 bytes"):
        es_core.decode_rows(np.zeros(3, dtype=np.int8), np.array([code], dtype=np.uint8), np.array([3]), 3)


@pytest.mark.parametrize(("code", "n_bytes"), [(0, 2), (24, 4), (128, 1), (130, 5), (132, 13)])
def test_bytes_that_are_not_those_of_the_codes_are_refused(code: int, n_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"bytes by the codes, got {n_bytes}"):
        es_core.decode_rows(np.zeros(n_bytes, dtype=np.int8), np.array([code], dtype=np.uint8), np.array([3]), 3)


def test_there_is_a_code_for_each_row() -> None:
    with pytest.raises(ValueError, match="codes: expected one a row, 2, got 1"):
        es_core.decode_rows(np.zeros(3, dtype=np.int8), np.zeros(1, dtype=np.uint8), np.array([2, 1]), 3)

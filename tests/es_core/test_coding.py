import math
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


@pytest.mark.parametrize("code", [25, 127, 133, 135, 240, 255])
def test_what_is_no_code_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="codes: expected shifts up to 24, or 128 and up to 4 bytes, or 136 to 239"):
        es_core.decode_rows(np.zeros(3, dtype=np.int8), np.array([code], dtype=np.uint8), np.array([3]), 3)


@pytest.mark.parametrize(("code", "n_bytes"), [(0, 2), (24, 4), (128, 1), (130, 5), (132, 13), (136, 1), (239, 3)])
def test_bytes_that_are_not_those_of_the_codes_are_refused(code: int, n_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"bytes by the codes, got {n_bytes}"):
        es_core.decode_rows(np.zeros(n_bytes, dtype=np.int8), np.array([code], dtype=np.uint8), np.array([3]), 3)


def test_there_is_a_code_for_each_row() -> None:
    with pytest.raises(ValueError, match="codes: expected one a row, 2, got 1"):
        es_core.decode_rows(np.zeros(3, dtype=np.int8), np.zeros(1, dtype=np.uint8), np.array([2, 1]), 3)


words = st.integers(0, 2**32 - 1)


@given(rows_of(wide), st.data())
@example([[0, 127, -127], [128, 255], [2**31, -(2**31)], [2**63 - 1, -(2**63), 2**24, -1]], None)
def test_random_words_round_a_row_up_or_down(rows: Rows, data: st.DataObject | None) -> None:
    numbers, lengths = flat(rows)
    random = np.array([data.draw(words) if data else 2**32 - 1 for _ in numbers], dtype=np.uint32)
    coded, codes = es_core.round_rows(numbers, random, lengths)
    assert codes.tolist() == [plain_shift(row) for row in rows]
    at = iter(zip(coded.tolist(), random.tolist(), strict=True))
    for row, shift in zip(rows, codes.tolist(), strict=True):
        for number, (byte, word) in zip(row, at, strict=False):
            raised = math.floor(Fraction(number + (word >> 32 - shift), 2**shift))
            assert byte == max(-127, min(127, raised))


@pytest.mark.usefixtures("isa")
def test_long_rows_are_rounded_by_words_alike_on_every_instruction_set() -> None:
    lengths = np.array([2, 7, 8, 64, 129, 1000])
    generator = np.random.default_rng(1)
    numbers = np.concatenate([generator.integers(-(2**bits), 2**bits, n) for bits, n in enumerate(lengths, start=6)])
    random = generator.integers(0, 2**32, numbers.size, dtype=np.uint32)
    coded, codes = es_core.round_rows(numbers, random, lengths)
    shifts = np.repeat(codes.astype(np.int64), lengths)
    expected = np.clip((numbers + (random.astype(np.int64) >> (32 - shifts))) >> shifts, -127, 127)
    assert coded.tolist() == expected.tolist()


@pytest.mark.parametrize("n_words", [2, 4])
def test_rounding_needs_a_random_word_a_number(n_words: int) -> None:
    with pytest.raises(ValueError, match=f"words: expected a word for each number, 3, got {n_words}"):
        es_core.round_rows(np.zeros(3, dtype=np.int64), np.zeros(n_words, dtype=np.uint32), np.array([3]))


def step_of(code: int) -> int:
    return (4 + (code - 136) % 4) << (code - 136) // 4


def plain_code(row: list[int]) -> int:
    return next((c for c in range(136, 239) if 7 * step_of(c) >= max(map(abs, row))), 239)


octets = st.integers(0, 255)


@given(rows_of(wide), st.data())
@example([[28, -28, 0], [29, 1], [49, 0], [2**31 - 1, -(2**31)], [2**63 - 1, -(2**63), 5]], None)
def test_packed_rows_are_numbers_in_four_bits_rounded_by_a_random_byte(rows: Rows, data: st.DataObject | None) -> None:
    numbers, lengths = flat(rows)
    random = np.array([data.draw(octets) if data else 255 for _ in numbers], dtype=np.uint8)
    coded, codes = es_core.pack_rows(numbers, random, lengths)
    at, expected, halves = 0, [], bytearray()
    for row, code in zip(rows, codes.tolist(), strict=True):
        if len(row) == 1:
            assert code == plain_shift(row)
            byte = max(-127, min(127, round(Fraction(row[0], 2**code))))
            expected.append(byte << code)
            halves.append(byte & 255)
        else:
            assert code == plain_code(row)
            each = [
                math.floor(Fraction(n, step_of(code)) + Fraction(2 * int(r) + 1, 512))
                for n, r in zip(row, random[at:], strict=False)
            ]
            each = [max(-7, min(7, number)) for number in each]
            expected += [number * step_of(code) for number in each]
            padded = [number & 15 for number in each] + [0] * (len(row) % 2)
            halves += bytes(low | high << 4 for low, high in zip(padded[::2], padded[1::2], strict=True))
        at += len(row)
    assert coded.tobytes() == bytes(halves)
    assert es_core.decode_rows(coded, codes, lengths, numbers.size).tolist() == expected


@given(rows_of(st.integers(-7, 7)), st.integers(136, 239), octets)
def test_whole_steps_survive_packing(rows: Rows, code: int, octet: int) -> None:
    rows = [[7, *row] for row in rows]
    numbers, lengths = flat([[n * step_of(code) for n in row] for row in rows])
    coded, codes = es_core.pack_rows(numbers, np.full(numbers.size, octet, dtype=np.uint8), lengths)
    assert codes.tolist() == [code] * len(rows)
    assert es_core.decode_rows(coded, codes, lengths, numbers.size).tolist() == numbers.tolist()


def test_packed_rows_have_the_known_bytes() -> None:
    numbers = np.array([700, -350, 99, 1, 0, -49 << 25, 49 << 25, 300])
    random = np.array([0, 255, 128, 7, 0, 0, 0, 0], dtype=np.uint8)
    coded, codes = es_core.pack_rows(numbers, random, np.array([3, 1, 3, 1]))
    assert codes.tolist() == [155, 0, 239, 2]
    assert coded.tobytes().hex() == "d601019007" + "4b"


@pytest.mark.usefixtures("isa")
def test_long_rows_are_packed_alike_on_every_instruction_set() -> None:
    lengths = np.array([2, 7, 8, 64, 129, 1000])
    generator = np.random.default_rng(1)
    numbers = np.concatenate([generator.integers(-(2**bits), 2**bits, n) for bits, n in enumerate(lengths, start=6)])
    random = generator.integers(0, 256, numbers.size, dtype=np.uint8)
    coded, codes = es_core.pack_rows(numbers, random, lengths)
    steps = np.repeat([step_of(code) for code in codes.tolist()], lengths)
    expected = np.floor((512 * numbers + (2 * random.astype(np.int64) + 1) * steps) / (512 * steps))
    assert es_core.decode_rows(coded, codes, lengths, numbers.size).tolist() == (expected * steps).tolist()


def test_packing_needs_a_random_byte_a_number() -> None:
    with pytest.raises(ValueError, match="random: expected a byte for each number, 3, got 2"):
        es_core.pack_rows(np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.uint8), np.array([3]))

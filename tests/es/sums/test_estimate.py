import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from es_core import random_words
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.sums.estimate import (
    CodedEstimate,
    Integers,
    decode_estimate,
    encode_estimate,
    encode_exactly,
    encode_packed,
    encode_randomly,
    estimate_of_rows,
    exact_width,
    packed_bytes,
    random_bytes,
)
from tests.es.parts import PARTS, WHOLE, Encode, pieces

LAYOUT = ParameterLayout((TensorSpec("matrix", (2, 3)), TensorSpec("vector", (2,))))
ROWS = [3, 3, 1, 1]


@given(st.lists(st.integers(-(127 << 24), 127 << 24), min_size=8, max_size=8))
def test_a_number_is_kept_to_the_eighth_bit_of_the_greatest_of_its_row(numbers: list[int]) -> None:
    estimate = np.array(numbers, dtype=np.int64)
    decoded = decode_estimate(LAYOUT, encode_estimate(LAYOUT, estimate))
    greatest = np.repeat(np.maximum.reduceat(np.abs(estimate), [0, 3, 6, 7]), ROWS)
    assert (np.abs(decoded - estimate) <= np.maximum(greatest / 127, 0)).all()


def test_small_numbers_are_exact() -> None:
    estimate = np.array([0, -127, 127, 1, -2, 3, 0, -5], dtype=np.int32)
    coded = encode_estimate(LAYOUT, estimate)
    np.testing.assert_array_equal(coded.shifts, 0)
    np.testing.assert_array_equal(decode_estimate(LAYOUT, coded), estimate)


def test_a_small_row_keeps_its_precision_beside_a_great_one() -> None:
    estimate = np.array([10**8, 0, 0, 5, -6, 7, 10**9, 1], dtype=np.int64)
    decoded = decode_estimate(LAYOUT, encode_estimate(LAYOUT, estimate))
    np.testing.assert_array_equal(decoded[3:6], [5, -6, 7])
    assert decoded[7] == 1


def test_what_32_bits_do_not_hold_is_cut() -> None:
    estimate = np.array([2**40, -(2**40), 0, 0, 0, 0, 2**33, 0], dtype=np.int64)
    most = 127 << 24
    decoded = decode_estimate(LAYOUT, encode_estimate(LAYOUT, estimate))
    np.testing.assert_array_equal(decoded, [most, -most, 0, 0, 0, 0, most, 0])


@pytest.mark.parametrize(
    ("n_numbers", "shifts", "complaint"),
    [
        (7, [0, 0, 0, 0], "expected 8 bytes by the codes, got 7"),
        (8, [0, 0, 0], "estimate of 8 parameters: codes: expected one a row, 4, got 3"),
        (8, [0, 25, 0, 0], "expected shifts up to 24, or 128 and up to 4 bytes, or 136 to 239"),
        (8, [0, 133, 0, 0], "expected shifts up to 24, or 128 and up to 4 bytes, or 136 to 239"),
        (8, [130, 0, 128, 0], "expected 10 bytes by the codes, got 8"),
    ],
)
def test_estimates_that_cannot_be_are_refused(n_numbers: int, shifts: list[int], complaint: str) -> None:
    coded = CodedEstimate(np.zeros(n_numbers, dtype=np.int8), np.array(shifts, dtype=np.uint8))
    with pytest.raises(ValueError, match=complaint):
        decode_estimate(LAYOUT, coded)


@given(st.lists(st.integers(0, 31).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1)), min_size=8, max_size=8))
def test_an_exact_estimate_keeps_every_number(numbers: list[int]) -> None:
    estimate = np.array(numbers, dtype=np.int64)
    coded = encode_exactly(LAYOUT, estimate)
    np.testing.assert_array_equal(decode_estimate(LAYOUT, coded), estimate)
    assert decode_estimate(LAYOUT, coded).dtype == np.int32
    np.testing.assert_array_equal(decode_estimate(LAYOUT, encode_exactly(LAYOUT, estimate.astype(np.int32))), estimate)


@pytest.mark.parametrize(
    ("greatest", "width"),
    [
        (0, 0),
        (1, 1),
        (-1, 1),
        (127, 1),
        (-128, 1),
        (128, 2),
        (-129, 2),
        (-32768, 2),
        (32768, 3),
        (-(2**23), 3),
        (2**23, 4),
    ],
)
def test_an_exact_row_takes_the_bytes_that_its_greatest_number_needs(greatest: int, width: int) -> None:
    coded = encode_exactly(LAYOUT, np.array([0, greatest, 0, 0, 0, 0, greatest, 5], dtype=np.int64))
    assert coded.shifts.tolist() == [128 + width, 128, 128 + width, 129]
    assert coded.numbers.size == 4 * width + 1


def test_exact_rows_of_one_width_are_bytes_in_a_row() -> None:
    coded = encode_exactly(LAYOUT, np.array([300, -300, 256, 1000, -1000, 999, 700, -1 - 256], dtype=np.int64))
    assert coded.numbers.view(np.uint8)[:6].tolist() == [44, 1, 212, 254, 0, 1]
    np.testing.assert_array_equal(decode_estimate(LAYOUT, coded), [300, -300, 256, 1000, -1000, 999, 700, -257])


def test_rounded_and_exact_rows_may_stand_together() -> None:
    numbers = np.array([1, -2, 3, 44, 1, 5], dtype=np.int8)
    coded = CodedEstimate(numbers, np.array([4, 128, 130, 0], dtype=np.uint8))
    np.testing.assert_array_equal(decode_estimate(LAYOUT, coded), [16, -32, 48, 0, 0, 0, 300, 5])


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_an_exact_estimate_beyond_32_bits_is_refused(number: int) -> None:
    estimate = np.array([0, 0, number, 0, 0, 0, 0, 0], dtype=np.int64)
    with pytest.raises(ValueError, match="expected integers of 32 bits"):
        encode_exactly(LAYOUT, estimate)


@pytest.mark.parametrize(("n_members", "rank", "width"), [(1, 0, 1), (2, 1, 2), (258, 1, 2), (259, 1, 3), (65, 4, 3)])
def test_the_width_of_an_exact_estimate_holds_what_all_members_can_make(n_members: int, rank: int, width: int) -> None:
    assert exact_width(n_members, rank) == width
    coded = encode_exactly(LAYOUT, np.full(8, -127 * n_members * max(rank, 1)))
    assert coded.shifts.tolist() == [128 + width] * 4


def test_exact_rows_have_the_bytes_of_the_protocols_example() -> None:
    layout = ParameterLayout((TensorSpec("matrix", (2, 2)), TensorSpec("vector", (1,))))
    coded = encode_exactly(layout, np.array([300, -2, 0, 0, -1], dtype=np.int64))
    assert coded.numbers.tobytes().hex() == "2c01feffff"
    assert coded.shifts.tobytes().hex() == "828081"
    assert coded.n_bytes == 8


def packed(layout: ParameterLayout, estimate: Integers) -> CodedEstimate:
    return encode_packed(layout, estimate, random_bytes(3, 4, layout.size))


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("encode", [encode_estimate, encode_exactly, packed])
def test_a_part_of_an_estimate_stands_for_the_parts_numbers(encode: Encode, name: str) -> None:
    generator = np.random.default_rng(5)
    # Rows of all sizes, some without a byte.
    sizes = generator.integers(-3, 26, WHOLE.row_lengths.size)
    greatest = np.repeat(np.maximum(2.0**sizes, 0.5), WHOLE.row_lengths)
    estimate = (generator.uniform(-1, 1, WHOLE.size) * greatest).astype(np.int32)
    coded = encode(WHOLE, estimate)
    found = decode_estimate(PARTS[name], estimate_of_rows(WHOLE, WHOLE.row_intervals(PARTS[name]), coded))
    expected = pieces(WHOLE, PARTS[name], decode_estimate(WHOLE, coded).view(np.float32))
    np.testing.assert_array_equal(found, expected.view(np.int32))


def test_the_part_that_is_the_whole_shares_the_estimates_bytes() -> None:
    coded = encode_estimate(WHOLE, np.ones(WHOLE.size, dtype=np.int32))
    part = estimate_of_rows(WHOLE, WHOLE.row_intervals(WHOLE), coded)
    assert np.shares_memory(part.numbers, coded.numbers)
    assert (part.numbers.size, part.shifts.size) == (coded.numbers.size, coded.shifts.size)


def test_nothing_of_a_model_has_an_empty_estimate() -> None:
    empty = WHOLE.part([])
    coded = estimate_of_rows(WHOLE, [], encode_estimate(WHOLE, np.ones(WHOLE.size, dtype=np.int32)))
    assert decode_estimate(empty, coded).size == 0


@pytest.mark.parametrize(
    ("n_numbers", "shifts", "complaint"),
    [
        (7, [0, 0, 0, 0], "estimate of 8 parameters: numbers: expected 8 bytes by the codes, got 7"),
        (9, [0, 0, 0, 0], "estimate of 8 parameters: numbers: expected 8 bytes by the codes, got 9"),
        (8, [130, 0, 128, 0], "expected 10 bytes by the codes, got 8"),
        (8, [0, 0, 0], "estimate of 8 parameters: codes: expected one a row, 4, got 3"),
    ],
)
def test_a_part_of_an_estimate_that_cannot_be_is_refused(n_numbers: int, shifts: list[int], complaint: str) -> None:
    coded = CodedEstimate(np.zeros(n_numbers, dtype=np.int8), np.array(shifts, dtype=np.uint8))
    with pytest.raises(ValueError, match=complaint):
        estimate_of_rows(LAYOUT, [slice(2, 4)], coded)


def test_an_estimate_of_no_more_than_the_rows_wanted_is_refused() -> None:
    first_rows = CodedEstimate(np.zeros(6, dtype=np.int8), np.zeros(2, dtype=np.uint8))
    with pytest.raises(ValueError, match="codes: expected one a row, 4, got 2"):
        estimate_of_rows(LAYOUT, [slice(0, 2)], first_rows)


def test_rounding_by_random_words_has_the_integers_as_its_mean() -> None:
    layout = ParameterLayout((TensorSpec("matrix", (2, 4)),))
    estimate = np.array([127 << 8, 100, -1000, 3, 0, 1, -2, 127], dtype=np.int64)
    words = np.random.default_rng(1).integers(0, 2**32, (20_000, 8), dtype=np.uint32)
    decoded = np.array([decode_estimate(layout, encode_randomly(layout, estimate, each)) for each in words])
    assert set(np.unique(decoded[:, 1])) == {0, 256}
    np.testing.assert_allclose(decoded.mean(axis=0), estimate, atol=4 * 128 / len(words) ** 0.5)
    assert (decoded[:, [0, 4, 5, 6, 7]] == estimate[[0, 4, 5, 6, 7]]).all()


def test_rounding_by_random_words_stays_within_a_byte() -> None:
    layout = ParameterLayout((TensorSpec("matrix", (2, 2)),))
    words = np.full(4, 2**32 - 1, dtype=np.uint32)
    coded = encode_randomly(layout, np.array([2**33, -(2**33), 5, -7]), words)
    assert coded.numbers.tolist() == [127, -127, 5, -7]


def test_packing_has_the_integers_as_its_mean() -> None:
    layout = ParameterLayout((TensorSpec("matrix", (2, 4)),))
    estimate = np.array([7000, 100, -1003, 3, 0, 1, -2, 28], dtype=np.int64)
    random = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 8))
    decoded = np.array([decode_estimate(layout, encode_packed(layout, estimate, each)) for each in random])
    assert set(np.unique(decoded[:, 1])) == {0, 1024}  # 4 << 8, of which 7 are the first that hold 7000
    np.testing.assert_allclose(decoded.mean(axis=0), estimate, atol=2.0)
    assert np.unique(decoded[:, [4, 7]], axis=0).tolist() == [[0, 28]]


def test_a_packed_estimate_takes_half_the_bytes() -> None:
    coded = packed(LAYOUT, np.arange(8))
    assert coded.n_bytes == packed_bytes(LAYOUT) == 2 + 2 + 1 + 1 + 4
    assert coded.is_packed
    assert not encode_estimate(LAYOUT, np.arange(8)).is_packed
    assert not encode_exactly(LAYOUT, np.arange(8)).is_packed


def test_sums_of_a_relay_are_told_from_those_of_a_machine() -> None:
    assert encode_exactly(LAYOUT, np.zeros(8, dtype=np.int64)).is_exact
    assert encode_exactly(LAYOUT, np.full(8, 2**30)).is_exact
    assert not encode_estimate(LAYOUT, np.full(8, 2**30)).is_exact
    assert not packed(LAYOUT, np.full(8, 2**30)).is_exact


@pytest.mark.parametrize("greatest", [1, 28, 29, 49, 50, 127, 128, 10**6, 2**26 - 1, 49 << 25])
@pytest.mark.parametrize("encode", [encode_estimate, packed])
def test_the_bits_are_those_of_the_greatest_number_that_fits(encode: Encode, greatest: int) -> None:
    coded = encode(LAYOUT, np.array([0, greatest, 0, 0, 0, 0, 0, 0]))
    assert max(greatest.bit_length(), 5) <= coded.bits <= max(greatest.bit_length() + 1, 7)


def test_random_bytes_are_those_of_the_words_the_lowest_first() -> None:
    words = random_words(5, 6, 0, 1, 2)[0].tolist()
    expected = b"".join(word.to_bytes(4, "little") for word in words)
    assert random_bytes(5, 6, 7).tobytes() == expected
    for begin in range(1, 6):
        assert random_bytes(5, 6, 7 - begin, begin).tobytes() == expected[begin:]

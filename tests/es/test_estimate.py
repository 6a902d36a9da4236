import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.es.estimate import MAX_SHIFT, CodedEstimate, decode_estimate, encode_estimate
from fedlearn.es.layout import ParameterLayout, TensorSpec

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
    most = 127 << MAX_SHIFT
    decoded = decode_estimate(LAYOUT, encode_estimate(LAYOUT, estimate))
    np.testing.assert_array_equal(decoded, [most, -most, 0, 0, 0, 0, most, 0])


@pytest.mark.parametrize(
    ("n_numbers", "shifts", "complaint"),
    [
        (7, [0, 0, 0, 0], "expected 8 numbers and 4 shifts, got 7 and 4"),
        (8, [0, 0, 0], "expected 8 numbers and 4 shifts, got 8 and 3"),
        (8, [0, 25, 0, 0], "expected shifts up to 24, got 25"),
    ],
)
def test_estimates_that_cannot_be_are_refused(n_numbers: int, shifts: list[int], complaint: str) -> None:
    coded = CodedEstimate(np.zeros(n_numbers, dtype=np.int8), np.array(shifts, dtype=np.uint8))
    with pytest.raises(ValueError, match=complaint):
        decode_estimate(LAYOUT, coded)

import numpy as np
import pytest

from fedlearn.es.length import length_of


def test_length_is_the_root_of_the_sum_of_squares_whatever_the_numbers_are() -> None:
    assert length_of(np.array([3, -4], dtype=np.int64)) == 5.0
    assert length_of(np.array([0.6, 0.8])) == pytest.approx(1.0)
    assert length_of(np.full(4, 2**40, dtype=np.int64)) == 2.0**41  # whose squares no int64 holds

import numpy as np
import pytest

from fedlearn.es.sums.norm import l2_norm


def test_length_is_the_root_of_the_sum_of_squares_whatever_the_numbers_are() -> None:
    assert l2_norm(np.array([3, -4], dtype=np.int64)) == 5.0
    assert l2_norm(np.array([0.6, 0.8])) == pytest.approx(1.0)
    assert l2_norm(np.full(4, 2**40, dtype=np.int64)) == 2.0**41  # whose squares no int64 holds


@pytest.mark.parametrize("size", [0, 2**14 - 1, 2**14, 2**15 + 3])
def test_every_number_counts_once_however_many_there_are(size: int) -> None:
    numbers = np.random.default_rng(1).integers(-1000, 1000, size)
    assert l2_norm(numbers) ** 2 == pytest.approx(int((numbers**2).sum()), rel=1e-12)

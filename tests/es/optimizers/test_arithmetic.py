import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

from fedlearn.es.optimizers import exact_arithmetic

OddArithmetic = Callable[[], AbstractContextManager[None]]


def results() -> list[float]:
    """Sums, products, conversions and roots that come out differently in every mode, in NumPy and in Python."""
    small, ones = np.full(40, 1e-38, dtype=np.float32), np.ones(40, dtype=np.float32)
    products = small * np.float32(1e-3)
    sums = ones + np.float32(1e-9), -ones - np.float32(1e-9)
    converted = np.full(40, 2**24 + 1, dtype=np.int32).astype(np.float32)
    roots = np.sqrt(np.full(40, 2.0, dtype=np.float32))
    plain = [1.0 + float(products[0]), 1.0 / 3.0, -1.0 / 3.0, float(np.float32(1.0 / 3.0))]
    return [*products.tolist(), *sums[0].tolist(), *sums[1].tolist(), *converted.tolist(), *roots.tolist(), *plain]


def test_results_do_not_depend_on_the_arithmetic_of_the_process(odd_arithmetic: OddArithmetic) -> None:
    usual = results()
    with odd_arithmetic():
        odd = results()
        with exact_arithmetic(), exact_arithmetic():
            exact = results()
        after = results()
    assert odd != usual
    assert exact == usual
    assert after == odd


def test_the_arithmetic_of_the_process_comes_back_after_an_error(odd_arithmetic: OddArithmetic) -> None:
    def fail() -> None:
        with exact_arithmetic():
            raise ValueError("step")

    with odd_arithmetic():
        odd = results()
        with pytest.raises(ValueError, match="step"):
            fail()
        after = results()
    assert after == odd != results()


def test_what_overflows_is_infinite_without_a_warning() -> None:
    large = np.full(3, 3e38, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with exact_arithmetic():
            assert np.isinf(large * large).all()
            assert np.isnan(large * large - large * large).all()

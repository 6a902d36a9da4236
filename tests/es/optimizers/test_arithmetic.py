import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import TensorStep, exact_arithmetic
from fedlearn.es.optimizers.arithmetic import BLOCK, elementwise
from fedlearn.es.sums.estimate import Int32Array

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


class Summing:
    """A step that adds slot and estimate to the weights, and keeps the lengths it was given."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    @elementwise
    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        self.lengths.append(weights.size)
        weights += slots["other"] + estimate * np.float32(by.scale)
        slots["other"][:] = weights


@pytest.mark.parametrize("n", [0, 1, BLOCK, 2 * BLOCK + 5])
def test_an_elementwise_step_takes_every_element_once_and_at_most_a_block_together(n: int) -> None:
    weights, other = np.arange(n, dtype=np.float32), np.full(n, 0.5, dtype=np.float32)
    optimizer = Summing()
    optimizer.step(weights, {"other": other}, np.arange(n, dtype=np.int32), TensorStep({}, 1.0, 2.0, 0.0))
    assert weights.tolist() == [3.0 * i + 0.5 for i in range(n)]
    assert other.tolist() == weights.tolist()
    assert sum(optimizer.lengths) == n
    assert max(optimizer.lengths, default=0) <= BLOCK

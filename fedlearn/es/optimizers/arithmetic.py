"""The floating-point arithmetic in which all replicas take their steps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar, cast

import numpy as np

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.optimizer import TensorStep
from fedlearn.es.sums.estimate import Int32Array

BLOCK = 2**15
"""Number of elements that a step in NumPy takes at once, so that intermediate arrays stay in the processor's cache."""

Step = TypeVar("Step", bound=Callable[..., None])


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """A context in which this thread rounds to nearest and keeps subnormal numbers, whatever the process does.

    Each of NumPy's operations on float32 and each of Python's on floats then has one result on all machines. Numbers
    that overflow become infinite without a warning, as in the core.
    """
    with es_core.FloatGuard(), np.errstate(all="ignore"):
        yield


def elementwise(step: Step) -> Step:
    """Takes an optimizer's step in NumPy block by block; each element may depend on its own numbers alone.

    Intermediate arrays as long as the weights would cost more than the arithmetic.
    """

    @wraps(step)
    def in_blocks(
        self: object,
        weights: Float32Array,
        slots: Mapping[str, Float32Array],
        estimate: Int32Array,
        by: TensorStep,
    ) -> None:
        for first in range(0, weights.size, BLOCK):
            block = slice(first, first + BLOCK)
            step(self, weights[block], {name: slot[block] for name, slot in slots.items()}, estimate[block], by)

    return cast("Step", in_blocks)

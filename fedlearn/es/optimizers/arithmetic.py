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
"""Elements that a step in NumPy takes at once: what it works with stays in the processor's cache."""

Step = TypeVar("Step", bound=Callable[..., None])


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """A context in which this thread rounds to nearest and keeps subnormal numbers, whatever the process does.

    Each of NumPy's operations on float32 and each of Python's on floats then has one result on all machines. What
    overflows becomes infinite without a warning, as in the core.
    """
    with es_core.FloatGuard(), np.errstate(all="ignore"):
        yield


def elementwise(step: Step) -> Step:
    """An optimizer's step in NumPy of which each element depends on its own numbers alone, taken block by block.

    Arrays for what lies between as long as the weights would cost more than the arithmetic.
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

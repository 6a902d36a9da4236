"""The floating-point arithmetic in which all replicas take their steps."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import es_core


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """A context in which this thread rounds to nearest and keeps subnormal numbers, whatever the process does.

    Each of NumPy's operations on float32 and each of Python's on floats then has one result on all machines. What
    overflows becomes infinite without a warning, as in the core.
    """
    with es_core.FloatGuard(), np.errstate(all="ignore"):
        yield

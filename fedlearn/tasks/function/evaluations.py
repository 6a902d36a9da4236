"""Calls of a function that is minimized: counted, side by side, with the best point kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.search_space import SearchSpace

Float64Array = NDArray[np.float64]


@final
class Evaluations:
    """The losses of a function at points of a space; lower is better.

    The function is given copies of the points, which it may change.
    With more than one worker, so many threads call the function at the same time, which helps where it waits: for a
    service, a process or code without the interpreter's lock. `vectorized` functions are given all points at once.
    """

    def __init__(
        self, function: Callable[[Any], Any], space: SearchSpace, *, vectorized: bool = False, workers: int = 1
    ) -> None:
        self._function, self._space, self._vectorized = function, space, vectorized
        self._threads = ThreadPoolExecutor(workers) if workers > 1 and not vectorized else None
        self.n = 0
        """Evaluations so far."""
        self.best = space.start
        """The point with the least finite loss, [n]."""
        self.best_loss = np.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def losses(self, points: Float64Array) -> Float64Array:
        """The losses of points that are allowed, [points] of [points, n].

        Raises:
            ValueError: the function gave no number for each point.
        """
        found = self._called(points)
        self.n += len(points)
        number = int(np.argmin(np.where(np.isfinite(found), found, np.inf)))
        if found[number] < self.best_loss:
            self.best, self.best_loss = points[number].copy(), float(found[number])
        return found

    def _called(self, points: Float64Array) -> Float64Array:
        given = self._space.given(points)
        if self._vectorized:
            found = self._function(given)
        else:
            each = [_entry(given, number) for number in range(len(points))]
            found = list(self._threads.map(self._function, each) if self._threads else map(self._function, each))
        if found is None or (isinstance(found, list) and any(one is None for one in found)):
            raise ValueError("fun: expected a number, got None; return the loss")
        losses = np.asarray(found, dtype=np.float64)
        if losses.shape != (len(points),):
            wanted = f"[{len(points)}], one number a point" if self._vectorized else "a number"
            got = list(losses.shape if self._vectorized else losses.shape[1:])
            raise ValueError(f"fun: expected {wanted}, got an array of shape {got}")
        return losses


def _entry(arrays: Any, number: int) -> Any:  # noqa: ANN401 (an array, or arrays by name)
    if isinstance(arrays, dict):
        return {name: _entry(array, number) for name, array in arrays.items()}
    return arrays[number]

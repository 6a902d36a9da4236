"""Calls of a function that is minimized: counted, side by side, with the best point kept."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.search_space import SearchSpace

Float64Array = NDArray[np.float64]
Workers = int | Callable[[Callable[[Any], float], Iterable[Any]], Iterable[float]]
"""A number of threads, or a function that calls as `map` does, such as `multiprocessing.Pool().map`."""


@final
class Evaluations:
    """The losses of a function at points of a space; lower is better.

    The function is given copies of the points, which it may change.
    With more than one worker, so many threads call the function at the same time, which helps where it waits: for a
    service, a process or code without the interpreter's lock. `workers` may also be a function such as `map`.
    `vectorized` functions are given all points at once.
    """

    def __init__(
        self, function: Callable[[Any], Any], space: SearchSpace, *, vectorized: bool = False, workers: Workers = 1
    ) -> None:
        self._function, self._space, self._vectorized = function, space, vectorized
        self.n_at_once = 1 if callable(workers) or vectorized else workers
        """The number of threads; of another way to call the function it is not known, and 1."""
        self._threads = ThreadPoolExecutor(self.n_at_once) if self.n_at_once > 1 else None
        self._map = workers if callable(workers) else self._threads.map if self._threads else map
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
            losses, what = _numbers(self._function(given)), "fun"
            if losses.shape == (len(points), 1):  # as of a layer with one output
                losses = losses[:, 0]
        else:
            each = [_entry(given, number) for number in range(len(points))]
            losses, what = np.array(list(self._map(partial(_loss, self._function), each))), "workers"
        if losses.shape != (len(points),):
            raise ValueError(
                f"{what}: expected [{len(points)}], one number a point, got an array of shape {list(losses.shape)}"
            )
        return losses


def _loss(function: Callable[[Any], Any], point: Any) -> float:  # noqa: ANN401
    """What the function gives at a point: a number, or an array of one."""
    try:
        found = _numbers(function(point))
    except StopIteration as error:  # which would end the `map` that calls, as if there were no more points
        raise RuntimeError("fun: expected a number, and it raised StopIteration; callback may, to end") from error
    if found.size != 1:
        raise ValueError(f"fun: expected a number, got an array of shape {list(found.shape)}")
    return float(found.item())


def _numbers(found: Any) -> Float64Array:  # noqa: ANN401
    try:
        array = np.asarray(found)
        if array.dtype.kind == "c":
            raise TypeError("it is complex")
        numbers = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # the last by tensors that have a gradient
        raise ValueError(f"fun: expected a number, got {type(found).__name__}: {error}") from error
    if array.dtype.kind == "O" and any(one is None for one in array.flat):
        raise ValueError("fun: expected a number, got None; return the loss")
    return numbers


def _entry(arrays: Any, number: int) -> Any:  # noqa: ANN401 (an array, or arrays by name)
    if isinstance(arrays, dict):
        return {name: _entry(array, number) for name, array in arrays.items()}
    return arrays[number]

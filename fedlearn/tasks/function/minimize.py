"""Minimization of a function, in one call."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, overload

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.function.evolution import Arrays, EvolutionStrategy, Named


class Minimum(msgspec.Struct, Generic[Arrays], frozen=True, eq=False, kw_only=True):
    """The result of a search; what it shares with the results of `scipy.optimize` has their names."""

    x: Arrays
    """The point at which the search ended, float32."""
    fun: float
    """The value of the function at `x`."""
    nfev: int
    """Evaluations of the function."""
    success: bool
    """True if `fun` is finite, which says nothing about how good a minimum it is."""
    message: str
    """The reason why the search ended, or what went wrong."""
    history: list[float]
    """Mean loss of the members in each step, without those that are not finite."""

    def __repr__(self) -> str:
        x = {name: _short(array) for name, array in self.x.items()} if isinstance(self.x, Mapping) else _short(self.x)
        return f"Minimum(fun={self.fun:.6g}, nfev={self.nfev}, success={self.success}, message={self.message!r}, x={x})"


@overload
def minimize(
    f: Callable[[Named], Any],
    x0: Mapping[str, ArrayLike],
    *,
    steps: int = ...,
    sigma: float = ...,
    learning_rate: float | None = ...,
    population: int = ...,
    seed: int = ...,
    vectorized: bool = ...,
) -> Minimum[Named]: ...
@overload
def minimize(
    f: Callable[[Float32Array], Any],
    x0: ArrayLike,
    *,
    steps: int = ...,
    sigma: float = ...,
    learning_rate: float | None = ...,
    population: int = ...,
    seed: int = ...,
    vectorized: bool = ...,
) -> Minimum[Float32Array]: ...
# The signature has no annotations, which stand above, because `help` shows it.
def minimize(  # type: ignore[no-untyped-def]
    f,
    x0,
    *,
    steps=1000,
    sigma=0.1,
    learning_rate=None,
    population=0,
    seed=0,
    vectorized=False,
):
    """Minimizes `f` from `x0`, an array or arrays by name; `EvolutionStrategy` documents the settings.

    With `vectorized`, `f` is given all members at once, [population, *shape], and gives [population].

    >>> found = minimize(lambda x: ((x - 3) ** 2).sum(), [0.0, 0.0])
    >>> found.x.round(3).tolist(), found.nfev
    ([3.0, 3.0], 32001)

    Raises:
        ValueError: `x0` holds something else than finite numbers, or a setting is out of its range.
    """
    if steps < 1:
        raise ValueError(f"steps: expected 1 or more, got {steps}")
    es: EvolutionStrategy[Any] = EvolutionStrategy(
        x0, sigma=sigma, learning_rate=learning_rate, population=population, steps=steps, seed=seed
    )
    history = []
    for _ in range(steps):
        losses = _losses(f, es.ask(), vectorized=vectorized)
        finite = losses[np.isfinite(losses)]
        history.append(float(finite.mean()) if finite.size else float("nan"))
        es.tell(losses)
    weights = es.weights
    fun = float(_losses(f, _all_of(weights), vectorized=vectorized)[0])
    message = f"{steps} steps are done"
    if not np.isfinite(fun):
        when = "at x" if np.isfinite(history).any() else "anywhere; check its value at x0"
        message = f"the function is not finite {when}"
    return Minimum(
        x=weights,
        fun=fun,
        nfev=steps * es.population + 1,
        success=bool(np.isfinite(fun)),
        message=message,
        history=history,
    )


def _losses(f: Callable[[Any], Any], members: Any, *, vectorized: bool) -> Any:  # noqa: ANN401
    found = f(members) if vectorized else [f(member) for member in _each(members)]
    if found is None or (isinstance(found, list) and None in found):
        raise ValueError("f: expected a number, got None; return the loss")
    return np.asarray(found, dtype=np.float64)


def _each(members: Any) -> list[Any]:  # noqa: ANN401
    if not isinstance(members, Mapping):
        return list(members)
    n_members = len(next(iter(members.values())))
    return [{name: array[number] for name, array in members.items()} for number in range(n_members)]


def _all_of(arrays: Any) -> Any:  # noqa: ANN401
    """The arrays as a population of one member."""
    if isinstance(arrays, Mapping):
        return {name: array[np.newaxis] for name, array in arrays.items()}
    return arrays[np.newaxis]


def _short(array: Float32Array) -> str:
    return np.array2string(array, precision=4, threshold=6, edgeitems=3, separator=", ", max_line_width=1000)

"""Minimization of a function, in one call."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, overload

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.function.evolution import Arrays, EvolutionStrategy, Named


class Minimum(msgspec.Struct, Generic[Arrays], frozen=True, eq=False):
    """The result of a search."""

    x: Arrays
    """The point at which the search ended, float32."""
    loss: float
    """The value of the function at `x`."""
    history: list[float]
    """Mean loss of the members in each step, without those that are not finite."""
    n_evaluations: int


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
def minimize(
    f: Callable[[Any], Any],
    x0: Mapping[str, ArrayLike] | ArrayLike,
    *,
    steps: int = 1000,
    sigma: float = 0.1,
    learning_rate: float | None = None,
    population: int = 0,
    seed: int = 0,
    vectorized: bool = False,
) -> Minimum[Any]:
    """Minimizes `f` from `x0`, an array or arrays by name; `EvolutionStrategy` documents the settings.

    With `vectorized`, `f` is given all members at once, [population, *shape], and gives [population].

    >>> found = minimize(lambda x: ((x - 3) ** 2).sum(), [0.0, 0.0])
    >>> found.x.round(3).tolist(), found.n_evaluations
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
    loss = _losses(f, _all_of(weights), vectorized=vectorized)[0]
    return Minimum(weights, float(loss), history, steps * es.population + 1)


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
    """The arrays as a population of one."""
    if isinstance(arrays, Mapping):
        return {name: array[np.newaxis] for name, array in arrays.items()}
    return arrays[np.newaxis]

"""Minimization of a function, in one call."""

from collections.abc import Callable, Mapping
from typing import Any, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlearn.tasks.function.evaluations import Evaluations
from fedlearn.tasks.function.minimization import Method, Minimization, Minimum, Watching
from fedlearn.tasks.function.search_space import SearchSpace

Float64Array = NDArray[np.float64]


@overload
def minimize(
    fun: Callable[[dict[str, Float64Array]], Any],
    x0: Mapping[str, ArrayLike],
    *,
    bounds: Any = ...,  # noqa: ANN401
    integrality: Any = ...,  # noqa: ANN401
    tol: float = ...,
    maxiter: int = ...,
    maxfev: int = ...,
    restarts: int = ...,
    callback: Watching | None = ...,
    method: Method = ...,
    sigma: float = ...,
    population: int = ...,
    workers: int = ...,
    vectorized: bool = ...,
    seed: int = ...,
) -> Minimum[dict[str, Float64Array]]: ...
@overload
def minimize(
    fun: Callable[[Float64Array], Any],
    x0: ArrayLike,
    *,
    bounds: Any = ...,  # noqa: ANN401
    integrality: Any = ...,  # noqa: ANN401
    tol: float = ...,
    maxiter: int = ...,
    maxfev: int = ...,
    restarts: int = ...,
    callback: Watching | None = ...,
    method: Method = ...,
    sigma: float = ...,
    population: int = ...,
    workers: int = ...,
    vectorized: bool = ...,
    seed: int = ...,
) -> Minimum[Float64Array]: ...
# The signature has no annotations, which stand above, because `help` shows it.
def minimize(  # type: ignore[no-untyped-def]
    fun,
    x0,
    *,
    bounds=None,
    integrality=False,
    tol=1e-11,
    maxiter=0,
    maxfev=0,
    restarts=0,
    callback=None,
    method="auto",
    sigma=0.0,
    population=0,
    workers=1,
    vectorized=False,
    seed=0,
):
    """Minimizes `fun` from `x0`, an array or arrays by name, by evaluations alone.

    `bounds` is (low, high) for all numbers, a pair for each, or a `scipy.optimize.Bounds`; `integrality` is true for
    numbers that have to be integers; both are given by name where `x0` has names. The search ends when losses differ by
    no more than `tol`, after `maxiter` steps, or after `maxfev` evaluations (0: 10,000, and 1,000 for each number).
    With `restarts`, so many searches follow it, each with twice the population, and small ones between them, for
    functions with many valleys. `callback` is given a `Minimum` after each step; it may raise StopIteration to end.

    The method "covariance" is CMA-ES, with one number a parameter beyond 200 of them; "adam" is `EvolutionStrategy`,
    which averages over many steps. `auto` evaluates `x0` twice, and takes "adam" where the two differ and there are
    more than 50 parameters. `sigma` is the first standard deviation of the members, half of a usual distance between
    `x0` and the answer (0: a quarter of the bounds' distance, or half the root mean square of `x0`, and at least 0.5).

    `fun` is given one point, in as many threads as there are `workers`; with `vectorized` it is given many at once,
    [population, *shape], and gives [population].

    >>> found = minimize(lambda x: ((x - 3) ** 2).sum(), [0.0, 0.0])
    >>> found.x.round(5).tolist(), found.fun < 1e-10
    ([3.0, 3.0], True)

    Raises:
        ValueError: `x0` holds something else than finite numbers, a setting is out of its range, or `fun` gives no
            number.
    """
    space = SearchSpace(x0, bounds, integrality)
    _check(tol=tol, maxiter=maxiter, maxfev=maxfev, restarts=restarts, sigma=sigma, seed=seed)
    if population and not population >= 2:
        raise ValueError(f"population: expected 0 or at least 2, got {population}; members are compared")
    if workers < 1:
        raise ValueError(f"workers: expected 1 or more, got {workers}")
    if method not in get_args(Method):
        raise ValueError(f"method: expected one of {', '.join(get_args(Method))}, got {method!r}")
    with Evaluations(fun, space, vectorized=vectorized, workers=workers) as evaluations:
        search = Minimization(space, evaluations, tol=tol, maxiter=maxiter, maxfev=maxfev, callback=callback)
        return search.run(method, sigma=sigma, population=population, restarts=restarts, seed=seed)


def _check(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 <= value < np.inf:
            raise ValueError(f"{name}: expected 0 or more, got {value}")

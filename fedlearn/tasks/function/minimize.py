"""Minimization of a function, in one call."""

from collections.abc import Callable, Mapping
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlearn.tasks.function.evaluations import Evaluations
from fedlearn.tasks.function.minimization import Minimization, Minimum, Watching
from fedlearn.tasks.function.search_settings import check_range, search_settings
from fedlearn.tasks.function.search_space import SearchSpace
from fedlearn.tasks.signatures import check_takes

Float64Array = NDArray[np.float64]

TOL = 1e-11
"""The difference of losses that counts as none, by default."""


@overload
def minimize(
    fun: Callable[[dict[str, Float64Array]], Any],
    x0: Mapping[str, ArrayLike],
    *,
    bounds: Any = ...,  # noqa: ANN401
    tol: float | None = ...,
    maxiter: int = ...,
    maxfev: int = ...,
    callback: Watching | None = ...,
    **settings: Any,  # noqa: ANN401
) -> Minimum[dict[str, Float64Array]]: ...
@overload
def minimize(
    fun: Callable[[Float64Array], Any],
    x0: ArrayLike,
    *,
    bounds: Any = ...,  # noqa: ANN401
    tol: float | None = ...,
    maxiter: int = ...,
    maxfev: int = ...,
    callback: Watching | None = ...,
    **settings: Any,  # noqa: ANN401
) -> Minimum[Float64Array]: ...
# The signature has no annotations, which stand above, because `help` shows it.
def minimize(  # type: ignore[no-untyped-def]
    fun, x0, *, bounds=None, tol=None, maxiter=0, maxfev=0, callback=None, **settings
):
    """Minimizes `fun` from `x0`, an array or arrays by name, by evaluations alone.

    `bounds` is (low, high) for all numbers, a pair for each, a `scipy.optimize.Bounds`, or, of more than two numbers,
    a list of lows and one of highs; by name where `x0` has them. A number whose bounds are equal stays there. The
    search ends when losses differ by no more than `tol` (None: 1e-11), after `maxiter` steps, or after `maxfev`
    evaluations (0: 10,000, and 1,000 for each number that is searched). `callback` is given a `Minimum` after each
    step; it may raise StopIteration to end.

    `settings` are `integrality` (as `bounds`, true for numbers that have to be integers); `restarts` (so many searches
    follow, each with twice the population or more, and small ones between, for functions with many valleys); `workers`
    (threads, of which each is given one point, and a step has enough of them for all; or a function such as `map`);
    `vectorized` (`fun` is given many points at once, [population, *shape], and gives [population], or a column of
    that); `population`; `sigma`, the first standard deviation of the members, half of a usual distance between `x0` and
    the answer (0: a quarter of the bounds' distance, or half the root mean square of `x0`, and at least 0.5); `seed`;
    and `method`: "covariance", the default, is CMA-ES, which beyond 200 numbers learns the directions in which it has
    gone (LM-CMA), or variances alone where there are bounds, integers or noise; "diagonal" learns variances alone,
    for numbers that differ in scale and in nothing else; and "adam" is `EvolutionStrategy`, which averages over many
    steps. `x0` is evaluated twice: where the two differ steps have more
    members as evaluations add up, unless `population` says how many.

    >>> found = minimize(lambda x: ((x - 3) ** 2).sum(), [0.0, 0.0])
    >>> found.x.round(5).tolist(), found.fun < 1e-10
    ([3.0, 3.0], True)

    Raises:
        ValueError: `x0` holds something else than finite numbers, a setting is unknown or out of its range, or `fun`
            takes other arguments or gives no number.
    """
    chosen = search_settings(settings)
    tol = TOL if tol is None else tol
    check_range(tol=tol, maxiter=maxiter, maxfev=maxfev)
    check_takes("fun", fun, "x")
    space = SearchSpace(x0, bounds, chosen.integrality)
    with Evaluations(fun, space, vectorized=chosen.vectorized, workers=chosen.workers) as evaluations:
        search = Minimization(space, evaluations, tol=tol, maxiter=maxiter, maxfev=maxfev, callback=callback)
        return search.run(chosen)

"""The searches of one call of `minimize`, and what they spend and find together."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.adam_search import AdamSearch
from fedlearn.tasks.function.covariance import LARGEST_FULL, CovarianceSearch
from fedlearn.tasks.function.evaluations import Evaluations
from fedlearn.tasks.function.low_rank import LowRankSearch
from fedlearn.tasks.function.noisy import Widening
from fedlearn.tasks.function.restarts import Beginning, RestartPlan
from fedlearn.tasks.function.search_settings import Method, SearchSettings
from fedlearn.tasks.function.search_space import SearchSpace

Float64Array = NDArray[np.float64]
Point = TypeVar("Point", Float64Array, dict[str, Float64Array])
"""An array, or arrays by name, as the search began with."""
Watching = Callable[["Minimum[Any]"], object]
Search = AdamSearch | CovarianceSearch | LowRankSearch

MOST_WITHOUT_LOSS = 10
"""The number of first steps without a finite loss after which nothing more is tried."""

FEWEST_STEPS = 50
"""The number of steps that evaluations have to be enough for where more members than are usual keep workers busy."""


class Minimum(msgspec.Struct, Generic[Point], frozen=True, eq=False, kw_only=True):
    """The result of a search; what it shares with the results of `scipy.optimize` has their names."""

    x: Point
    """The best point that was evaluated; where the function is noisy, the middle of the last members."""
    fun: float
    """The value of the function at `x`."""
    nfev: int
    """Evaluations of the function."""
    nit: int
    """Steps."""
    success: bool
    """True if `fun` is finite, which says nothing about how good a minimum it is."""
    message: str
    """The reason why the search ended, or what went wrong."""
    history: list[float]
    """Mean loss of the members in each step, without those that are not finite."""

    def __repr__(self) -> str:
        x = {name: _short(array) for name, array in self.x.items()} if isinstance(self.x, Mapping) else _short(self.x)
        return f"Minimum(fun={self.fun:.6g}, nfev={self.nfev}, success={self.success}, message={self.message!r}, x={x})"


@final
class Minimization:
    """One call of `minimize`: searches, one after another, until nothing is left to spend."""

    def __init__(
        self,
        space: SearchSpace,
        evaluations: Evaluations,
        *,
        tol: float,
        maxiter: int,
        maxfev: int,
        callback: Watching | None,
    ) -> None:
        self._space, self._evaluations, self._callback = space, evaluations, callback
        self._tol, self._maxiter = tol, maxiter
        self._maxfev = maxfev or 10_000 + 1000 * space.start.size
        self._history: list[float] = []
        self._is_noisy = self._widens = False

    def run(self, settings: SearchSettings) -> Minimum[Any]:
        """Carries out the searches, and gives what they found."""
        method, population, restarts = settings.method, settings.population, settings.restarts
        start, generator = self._space.start, np.random.default_rng(settings.seed)
        if not (n := start.size):
            self._evaluations.losses(start[np.newaxis])
            found = self._found(start, self._evaluations.best_loss, "all numbers are fixed by their bounds")
            return self._judged(found)
        first, again = self._evaluations.losses(np.stack([start, start]))
        self._is_noisy = bool(np.isfinite([first, again]).all() and first != again)
        self._widens = self._is_noisy and method != "adam" and not population
        kind = AdamSearch if method == "adam" else CovarianceSearch
        usual = population or self._keeping_busy(kind.usual_population(n))
        deviations = np.full(n, settings.sigma) if settings.sigma else self._space.usual_deviations()
        plan = RestartPlan(usual, generator)
        beginning = plan.first()
        while True:
            before = self._evaluations.n
            search = self._begun(method, start, deviations * beginning.factor, beginning.population, generator)
            reason, has_ended = self._searched(search, beginning)
            if has_ended or restarts == 0:
                return self._ended(search.mean, reason)
            done = self._evaluations.n
            beginning = plan.after(done - before, self._maxfev - done)
            start = self._space.somewhere(generator, deviations)
            restarts -= beginning.is_large

    def _keeping_busy(self, population: int) -> int:
        """The members of a step: no fewer than `population`, and enough for all workers if that leaves many steps."""
        again, n_at_once = int(self._widens), self._evaluations.n_at_once
        busy = -(-(population + again) // n_at_once) * n_at_once - again
        return max(population, min(busy, self._maxfev // FEWEST_STEPS))

    def _begun(
        self,
        method: Method,
        start: Float64Array,
        deviations: Float64Array,
        population: int,
        generator: np.random.Generator,
    ) -> Search:
        if method == "adam":
            steps = max((self._maxfev - self._evaluations.n) // population, 1)
            steps = min(steps, self._maxiter - len(self._history)) if self._maxiter else steps
            return AdamSearch(start, deviations, population=population, steps=steps, generator=generator)
        if method == "covariance" and start.size > LARGEST_FULL and self._is_free():
            return LowRankSearch(start, deviations, population=population, generator=generator)
        return CovarianceSearch(
            start,
            deviations,
            population=population,
            generator=generator,
            is_integer=self._space.is_integer,
            is_diagonal=method == "diagonal",
        )

    def _is_free(self) -> bool:
        """Whether losses alone say whether a step was better than the one before: without noise, bounds or rounding."""
        has_bounds = np.isfinite([self._space.low, self._space.high]).any()
        return not (self._is_noisy or has_bounds or self._space.is_integer.any())

    def _searched(self, search: Search, beginning: Beginning) -> tuple[str, bool]:
        """Lets a search take its steps; gives the reason why it ended, and whether no other may follow."""
        began, widening = self._evaluations.n, Widening(search.mean.size)
        while not beginning.limit or self._evaluations.n < began + beginning.limit:
            if self._widens and isinstance(search, CovarianceSearch):
                search.widen(widening.groups_after(self._evaluations.n - began) * beginning.population)
            if reason := self._why_spent(search.population):
                return reason, True
            members = search.ask()
            inside = self._space.inside(members)
            # A member again is asked for beside the others, since an evaluation may take an hour.
            found = self._evaluations.losses(np.concatenate([inside, inside[:1]]) if self._widens else inside)
            losses = found[: len(members)]
            finite = losses[np.isfinite(losses)]
            self._history.append(float(finite.mean()) if finite.size else float("nan"))
            if self._widens:
                widening.took(losses, found[-1])
            search.tell(ranked(losses, members, self._space.distances(members)))
            if self._callback is not None:
                try:
                    self._callback(self._found(search.mean, self._history[-1], "under way"))
                except StopIteration:
                    return "the callback ended the search", True
            if reason := search.why_done(self._tol):
                return reason, False
        return f"{beginning.limit} evaluations of a restart are done", False

    def _why_spent(self, population: int) -> str:
        """The reason why no search may take another step, or an empty text."""
        n_more = population + (2 if self._widens else 1)  # of the middle in the end, and of one member again
        if self._history and self._evaluations.n + n_more > self._maxfev:
            return f"of {self._maxfev} evaluations fewer are left than a step takes"
        if self._maxiter and len(self._history) >= self._maxiter:
            return f"{self._maxiter} steps are done"
        if len(self._history) == MOST_WITHOUT_LOSS and np.isnan(self._history).all():
            return "no step had a finite loss"
        return ""

    def _ended(self, mean: Float64Array, reason: str) -> Minimum[Any]:
        middle = self._space.inside(mean[np.newaxis])
        fun = float(self._evaluations.losses(middle)[0])
        return self._judged(self._found(middle[0], fun, reason))

    def _judged(self, found: Minimum[Any]) -> Minimum[Any]:
        """The result, with another message where it is no success."""
        if found.success:
            return found
        when = "at x" if np.isfinite(self._history).any() else "anywhere; check its value at x0"
        return msgspec.structs.replace(found, message=f"the function is not finite {when}")

    def _found(self, middle: Float64Array, loss: float, message: str) -> Minimum[Any]:
        """The best point, or the middle of the members where the function is noisy."""
        evaluations = self._evaluations
        point, fun = (middle, loss) if self._is_noisy else (evaluations.best, evaluations.best_loss)
        x = self._space.given(self._space.inside(point[np.newaxis]))
        return Minimum(
            x={name: array[0] for name, array in x.items()} if isinstance(x, dict) else x[0],
            fun=fun,
            nfev=evaluations.n,
            nit=len(self._history),
            success=bool(np.isfinite(fun)),
            message=message,
            history=self._history,
        )


def ranked(losses: Float64Array, members: Float64Array, distances: Float64Array) -> Float64Array:
    """Losses by which members are compared, all finite, [population].

    `distances` [population, n] is how far members are out of bounds; such a member has the loss of the nearest allowed
    point, and more by the spread of the losses for each deviation of `members` that it is away. A loss that is not
    finite counts as the worst, and a number in which all members are equal tells nothing.
    """
    is_finite = np.isfinite(losses)
    if not is_finite.any():
        return np.zeros_like(losses)
    filled = np.where(is_finite, losses, losses[is_finite].max())
    if not distances.any():
        return filled
    low, high = np.quantile(filled, [0.25, 0.75])
    deviations = members.std(axis=0)
    away = np.divide(distances, deviations, out=np.zeros_like(distances), where=deviations > 0.0)
    return np.asarray(filled + (high - low) * (away**2).sum(axis=1))


def _short(array: Float64Array) -> str:
    text = np.array2string(array, precision=4, threshold=6, edgeitems=3, separator=", ", max_line_width=1000)
    return " ".join(text.split())

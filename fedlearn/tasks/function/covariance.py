"""CMA-ES: a search whose members follow a normal distribution that learns the shape of the function's valley.

Source: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv 1604.00772, with negative weights; by a Cholesky factor
as in Krause et al., "CMA-ES with Optimal Covariance Update and Storage Complexity", 2016; diagonal as in Ros and
Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity", 2008.
"""

import math
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.ending import Ending

Float64Array = NDArray[np.float64]

LARGEST_FULL = 200
"""The most parameters whose covariances are all learned; more have variances alone, which are learned sooner."""

WORST_CONDITION = 1e14
"""Ratio of the largest to the smallest variance of a parameter beyond which float64 can't hold the covariance."""

INTEGER_DEVIATION = 0.25
"""The least standard deviation of a parameter that is rounded: one member in twenty then has a neighbouring number."""


class Rates(msgspec.Struct, frozen=True):
    """The weights of members by rank, and how fast means, paths and covariance follow them."""

    weights: Float64Array
    """[population], of the best member first; those of the worse half are negative, and teach the covariance alone."""
    mass: float
    """The number of members that equal weights would need for the variance of the weighted mean."""
    path_length: float
    path_shape: float
    damping: float
    rank_one: float
    rank_many: float


def rates_of(n: int, population: int, *, is_diagonal: bool) -> Rates:
    """The tutorial's default rates (its table 1)."""
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))
    better, worse = raw[raw > 0], raw[raw < 0]
    mass = float(better.sum() ** 2 / (better**2).sum())
    mass_of_worse = float(worse.sum() ** 2 / (worse**2).sum())
    path_length = (mass + 2) / (n + mass + 5)
    faster = (n + 2) / 3 if is_diagonal else 1.0
    rank_one = min(faster * 2 / ((n + 1.3) ** 2 + mass), 0.5)
    rank_many = min(1 - rank_one, faster * 2 * (mass - 1.75 + 1 / mass) / ((n + 2) ** 2 + mass))
    sum_of_worse = min(
        1 + rank_one / rank_many, 1 + 2 * mass_of_worse / (mass + 2), (1 - rank_one - rank_many) / (n * rank_many)
    )
    weights = np.where(raw > 0, raw / better.sum(), raw * sum_of_worse / -worse.sum())
    return Rates(
        weights=weights,
        mass=mass,
        path_length=path_length,
        path_shape=(4 + mass / n) / (n + 4 + 2 * mass / n),
        damping=1 + 2 * max(0.0, math.sqrt((mass - 1) / (n + 1)) - 1) + path_length,
        rank_one=rank_one,
        rank_many=rank_many,
    )


@final
class CovarianceSearch:
    """A search from `start` [n] whose members have the standard deviations [n] at first.

    Where it is diagonal, or beyond `LARGEST_FULL` parameters, their variances alone are learned.
    """

    def __init__(
        self,
        start: Float64Array,
        deviations: Float64Array,
        *,
        population: int,
        generator: np.random.Generator,
        is_integer: NDArray[np.bool_] | None = None,
        is_diagonal: bool = False,
    ) -> None:
        self.mean = start.copy()
        """The point around which members are drawn, [n]."""
        self.population, self._generator = population, generator
        self._unit, self._size = deviations, 1.0
        self._is_integer = np.zeros(start.size, dtype=np.bool_) if is_integer is None else is_integer
        self._is_diagonal = is_diagonal or start.size > LARGEST_FULL
        self._rates = rates_of(start.size, population, is_diagonal=self._is_diagonal)
        n = start.size
        self._covariance: Float64Array = np.ones(n) if self._is_diagonal else np.eye(n)
        self._factor = self._covariance.copy()
        self._path, self._shape_path = np.zeros(n), np.zeros(n)
        self._usual_length = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self._noise = self._moves = np.zeros((population, n))
        self._ending = Ending(n, population)
        self._is_too_narrow = False
        self.n_steps = 0
        """Steps taken."""

    @staticmethod
    def usual_population(n: int) -> int:
        """The population that is enough for n parameters and one valley."""
        return 4 + int(3 * math.log(n))

    @property
    def variances(self) -> Float64Array:
        """The variance of each parameter, in units of its first deviation and of the common size, [n]."""
        return self._covariance if self._is_diagonal else np.diagonal(self._covariance)

    def widen(self, population: int) -> None:
        """Lets steps have so many members from now on."""
        if population != self.population:
            self.population = population
            self._rates = rates_of(self.mean.size, population, is_diagonal=self._is_diagonal)
            self._noise = self._moves = np.zeros((population, self.mean.size))

    def ask(self) -> Float64Array:
        """New members, [population, n]."""
        self._noise = noise = self._generator.standard_normal(self._noise.shape)
        self._moves = noise * self._factor if self._is_diagonal else noise @ self._factor.T
        return self.mean + self._size * self._unit * self._moves

    def tell(self, losses: Float64Array) -> None:
        """Takes a step by the losses of the members that `ask` gave last, [population]."""
        order = np.argsort(losses, kind="stable")
        noise, moves, rates = self._noise[order], self._moves[order], self._rates
        n_better = int((rates.weights > 0).sum())
        mean_noise, mean_move = (rates.weights[:n_better] @ array[:n_better] for array in (noise, moves))
        self.mean += self._size * self._unit * mean_move
        self.n_steps += 1
        self._path *= 1 - rates.path_length
        self._path += math.sqrt(rates.path_length * (2 - rates.path_length) * rates.mass) * mean_noise
        length = float(np.linalg.norm(self._path)) / self._usual_length
        settled = length / math.sqrt(1 - (1 - rates.path_length) ** (2 * self.n_steps))
        self._adapt(noise, moves, mean_move, is_fast=settled >= 1.4 + 2 / (self.mean.size + 1))
        self._size *= math.exp(min(1.0, rates.path_length / rates.damping * (length - 1)))
        self._widen_integers()
        self._refactor()
        self._ending.took(losses)

    def why_done(self, tol: float) -> str:
        """The reason why further steps would find nothing, or an empty text.

        `tol` is the difference of losses that counts as none.
        """
        if reason := self._ending.why_flat(tol, comes_together=not self._is_integer.all()):
            return reason
        variances = self.variances[~self._is_integer]
        if self._is_too_narrow or (variances.size and variances.max() > WORST_CONDITION * variances.min()):
            return "the valley is too narrow for float64"
        return self._ending.why_size(
            self._size * math.sqrt(variances.max()) if variances.size else max(self._size, 1.0)
        )

    def _adapt(self, noise: Float64Array, moves: Float64Array, mean_move: Float64Array, *, is_fast: bool) -> None:
        """Learns the covariance from the members' moves; along the path only where that is not too long."""
        rates, follows = self._rates, 0.0 if is_fast else 1.0
        self._shape_path *= 1 - rates.path_shape
        self._shape_path += follows * math.sqrt(rates.path_shape * (2 - rates.path_shape) * rates.mass) * mean_move
        lacking = (1 - follows) * rates.rank_one * rates.path_shape * (2 - rates.path_shape)
        kept = 1 + lacking - rates.rank_one - rates.rank_many * float(rates.weights.sum())
        lengths = (noise**2).sum(axis=1)
        # A worse member counts as if it had the usual length, so that the covariance stays positive.
        weights = np.where(
            rates.weights < 0, rates.weights * noise.shape[1] / np.maximum(lengths, 1e-300), rates.weights
        )
        path = self._shape_path
        one: Float64Array = path**2 if self._is_diagonal else np.outer(path, path)
        many: Float64Array = weights @ moves**2 if self._is_diagonal else (moves.T * weights) @ moves
        self._covariance = kept * self._covariance + rates.rank_one * one + rates.rank_many * many

    def _widen_integers(self) -> None:
        """Keeps the deviations of rounded parameters so large that members differ."""
        if self._is_integer.any():
            least = np.where(self._is_integer, (INTEGER_DEVIATION / (self._size * self._unit)) ** 2, 0.0)
            lacking = np.maximum(least - self.variances, 0.0)
            self._covariance = self._covariance + (lacking if self._is_diagonal else np.diag(lacking))

    def _refactor(self) -> None:
        """Factors the covariance anew, when it has changed enough for the members to show it."""
        if self._is_diagonal:
            self._factor = np.sqrt(self._covariance)
            return
        each = int(1 / (10 * self.mean.size * (self._rates.rank_one + self._rates.rank_many)))
        if self.n_steps % max(each, 1) == 0:
            try:
                self._factor = np.asarray(np.linalg.cholesky(self._covariance))
            except np.linalg.LinAlgError:
                self._is_too_narrow = True

"""Covariance matrix adaptation: steps to the mean of the better members, whose noise learns the shape of the valley.

Source: Beyer and Sendhoff, "Simplify Your Covariance Matrix Adaptation Evolution Strategy", IEEE Transactions on
Evolutionary Computation 21(5), 2017, with the rates and negative weights of Hansen, "The CMA Evolution Strategy: A
Tutorial", arXiv 1604.00772; diagonal as in Ros and Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and
Space Complexity", 2008. Here the noise of a member is whole numbers, and the common size of the members' moves is part
of the factor.
"""

import math
from typing import Annotated, ClassVar, Self, final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedlearn.es.optimizers.optimizer import Optimizer, SearchStep

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


class AdaptationRates(msgspec.Struct, frozen=True):
    """How fast path and factor follow the members."""

    path: float
    path_mass: float
    damping: float
    rank_one: float
    rank_many: float
    weight_of_worse: float
    """The sum of the worse members' weights, where that of the better is 1."""


def rates_of(
    n: int, mass: float, mass_of_worse: float, *, path_share: float = 0.0, is_diagonal: bool = False
) -> AdaptationRates:
    """The tutorial's rates (its table 1) for n parameters; a diagonal is learned (n + 2) / 3 times as fast.

    The masses are the numbers of members that equal weights would need for the variances of the better and the worse
    members' weighted means.
    """
    path_mass = min(mass, path_share * n) if path_share else mass
    path = (path_mass + 2) / (n + path_mass + 5)
    faster = (n + 2) / 3 if is_diagonal else 1.0
    rank_one = faster * 2 / ((n + 1.3) * (n + 1.3) + mass)
    rank_many = min(1 - rank_one, faster * 2 * (mass - 2 + 1 / mass) / ((n + 2) * (n + 2) + mass))
    weight_of_worse = 0.0
    if rank_many > 0.0:
        weight_of_worse = min(
            1 + rank_one / rank_many,
            1 + 2 * mass_of_worse / (mass + 2),
            (1 - rank_one - rank_many) / (n * rank_many),
        )
    return AdaptationRates(
        path=path,
        path_mass=path_mass,
        damping=1 + 2 * max(0.0, math.sqrt(max(path_mass - 1, 0.0) / (n + 1)) - 1) + path,
        rank_one=rank_one,
        rank_many=rank_many,
        weight_of_worse=weight_of_worse,
    )


@final
class Cma(Optimizer, frozen=True, array_like=True, tag="cma"):
    """Covariance matrix adaptation. The learning rate is the length of the step; where it equals sigma, the step leads
    to the mean of the better members."""

    path_share: Annotated[
        float,
        Meta(
            description="the most members that the path counts, in multiples of the number of parameters; 0: all, in a "
            "new run as its losses say",
            ge=0,
            le=1e6,
        ),
    ] = 0.0
    """A mean of many members is long wherever losses are exact, also where the least one is in their middle, and the
    path must not take that for progress; losses with noise give it the length that chance does."""

    gathers: ClassVar[bool] = True
    searches: ClassVar[bool] = True
    rate_to_sigma: ClassVar[float] = 1.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("path",)

    def widened(self, factor: int) -> Self:
        """The same whose path counts more members, as their fourth root: fewer shrink too soon among many valleys, and
        more in one."""
        return msgspec.structs.replace(self, path_share=self.path_share * math.sqrt(math.sqrt(factor)))

    def search(self, by: SearchStep) -> None:
        """Moves position, factor and path by the members' numbers; a step that would leave float32 is not taken."""
        better, worse = np.maximum(by.utilities, 0), np.maximum(-by.utilities, 0)
        total = int(better.sum())  # without a better member, what is divided by it is not finite
        n, is_diagonal = by.position.size, by.factor.ndim == 1
        rates = rates_of(n, _mass(better), _mass(worse), path_share=self.path_share, is_diagonal=is_diagonal)
        weights = better / total - rates.weight_of_worse * (worse / max(int(worse.sum()), 1))
        moved = _moved_by_diagonal if is_diagonal else _moved_by_matrix
        move, path, adapted = moved(by, better, weights, rates)
        position = by.position + np.float32(self.learning_rate) * by.scales * move.astype(np.float32)
        adapted *= _exponential(min(rates.path / rates.damping * (_length(path) / _usual_length(n) - 1), 1.0))
        rounded, rounded_path = adapted.astype(np.float32), path.astype(np.float32)
        if all(np.isfinite(array).all() for array in (position, rounded, rounded_path)):
            by.position[:], by.factor[:], by.path[:] = position, rounded, rounded_path


Moved = tuple[Float64Array, Float64Array, Float64Array]
"""The move to the better members' mean before sigma and scales [n], the path [n], and the factor, whose size is not yet
changed."""


def _moved_by_matrix(by: SearchStep, better: Int64Array, weights: Float64Array, rates: AdaptationRates) -> Moved:
    """The step by a factor [n, n], which holds the numbers of all members at once."""
    n, factor = by.position.size, by.factor.astype(np.float64)
    numbers = np.concatenate([np.zeros((0, n), dtype=np.int64), *by.numbers])
    mean = (better @ numbers).astype(np.float64) / int(better.sum())
    path = _path_after(by.path, mean, rates)
    # A worse member counts as if it had the usual length, so that the covariance stays positive.
    counted = np.where(weights < 0, weights * (n / np.maximum((numbers * numbers).sum(axis=1), 1)), weights)
    vectors = np.concatenate([numbers, path[np.newaxis], mean[np.newaxis]])
    moves = _products(factor, vectors)
    shares = [*(0.5 * rates.rank_many * counted).tolist(), 0.5 * rates.rank_one]
    adapted = _share_kept(weights, rates) * factor
    for share, move, vector in zip(shares, moves, vectors, strict=False):
        adapted += (share * move)[:, np.newaxis] * vector
    return moves[-1], path, adapted


def _moved_by_diagonal(by: SearchStep, better: Int64Array, weights: Float64Array, rates: AdaptationRates) -> Moved:
    """The step by a factor [n], the diagonal of a matrix that has no more, which reads one member after another."""
    n, factor = by.position.size, by.factor.astype(np.float64)
    sums, squares = np.zeros(n, dtype=np.int64), np.zeros(n)
    members = (numbers for block in by.numbers for numbers in block)
    for utility, weight, numbers in zip(better.tolist(), weights.tolist(), members, strict=True):
        square = numbers * numbers
        if utility:
            sums += utility * numbers
        # A worse member counts as if it had the usual length here, too.
        squares += (weight * (n / max(int(square.sum()), 1)) if weight < 0 else weight) * square
    mean = sums.astype(np.float64) / int(better.sum())
    path = _path_after(by.path, mean, rates)
    grown = _share_kept(weights, rates) + 0.5 * rates.rank_many * squares
    grown += 0.5 * rates.rank_one * (path * path)
    return factor * mean, path, factor * grown


def _path_after(path: NDArray[np.float32], mean: Float64Array, rates: AdaptationRates) -> Float64Array:
    """The path after a step to this mean of the better members' numbers."""
    kept, pushed = 1 - rates.path, math.sqrt(rates.path_mass * rates.path * (2 - rates.path))
    return kept * path.astype(np.float64) + pushed * mean


def _share_kept(weights: Float64Array, rates: AdaptationRates) -> float:
    """The share of the factor that stays beside what path and members add."""
    return 1 - 0.5 * rates.rank_one - 0.5 * rates.rank_many * math.fsum(weights.tolist())


def _mass(weights: NDArray[np.int64]) -> float:
    """The number of equal weights whose mean has the variance of that by these."""
    squares = int((weights * weights).sum())
    return float(int(weights.sum()) ** 2) / squares if squares else 1.0


def _products(factor: Float64Array, vectors: Float64Array) -> Float64Array:
    """The products of the factor [n, n] with each of the vectors [m, n], summed in the order of the columns."""
    found = np.zeros_like(vectors)
    for column, elements in zip(factor.T, vectors.T, strict=True):
        found += elements[:, np.newaxis] * column
    return found


def _length(vector: Float64Array) -> float:
    """The Euclidean length, equal on every machine: a sum that is rounded once has no order."""
    return math.sqrt(math.fsum((vector * vector).tolist()))


def _usual_length(n: int) -> float:
    """The expected length of a normal vector of n elements."""
    return math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))


def _exponential(x: float) -> float:
    """(1 + x / 256)^256, nearly exp(x), by operations that every machine rounds alike."""
    power = 1 + x / 256
    for _ in range(8):
        power *= power
    return power

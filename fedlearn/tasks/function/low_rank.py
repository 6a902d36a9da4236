"""LM-CMA: a search whose members follow a normal distribution that is stretched along a few directions, those in which
its middle has gone, for functions of many numbers.

Source: Loshchilov, "LM-CMA: An Alternative to L-BFGS for Large-Scale Black Box Optimization", Evolutionary Computation
25(1), 2017. Members' size follows their success more slowly than there, so that it stays large among many valleys.
"""

import math
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.covariance import rates_of
from fedlearn.tasks.function.ending import Ending

Float64Array = NDArray[np.float64]

USED_DIRECTIONS = 4.0
"""The newest directions that most pairs of members are stretched along; the number of each pair is drawn."""

FIRST_PAIRS_SHARE = 10.0
"""The factor by which more directions are used by the first pair."""

WANTED_SUCCESS = 0.2
"""The share of comparisons with the step before that are won, less that of those lost, at which the size stays."""

SUCCESS_SHARE = 0.3
"""The share of a step in the success that the size follows."""

SIZE_DAMPING = 4.0


class Direction(msgspec.Struct):
    """One of the directions, and the factor of the covariance along it, as a product with the directions before it."""

    path: Float64Array
    """The way of the search's middle when the direction was taken, [n]."""
    born: int
    """The step of that."""
    inverse: Float64Array
    """The path by the inverse of the factor, [n]."""
    gain: float = 0.0
    """The weight of the path in what the factor adds to a member."""
    inverse_gain: float = 0.0


@final
class LowRankSearch:
    """A search from `start` [n] whose members have the standard deviations [n] at first, in pairs of opposite noise.

    Losses of different steps are compared, so what a bound adds to them, or noise, must not be among them.
    """

    def __init__(
        self, start: Float64Array, deviations: Float64Array, *, population: int, generator: np.random.Generator
    ) -> None:
        n, self.population = start.size, population + population % 2
        self.mean = start.copy()
        """The point around which members are drawn, [n]."""
        self._generator, self._unit, self._size = generator, deviations, 1.0
        rates = rates_of(n, self.population, is_diagonal=True)
        self._weights, self._mass = rates.weights[rates.weights > 0], rates.mass
        self._most_directions, self._steps_between = 4 + int(3 * math.log(n)), max(int(math.log(n)), 1)
        self._learned, self._path_share = 0.1 / math.log(n + 1), 0.5 / math.sqrt(n)
        self._directions: list[Direction] = []
        self._path, self._moves = np.zeros(n), np.zeros((self.population, n))
        self._last_losses: Float64Array | None = None  # in order
        self._success = 0.0
        self._ending = Ending(n, self.population)
        self.n_steps = 0
        """Steps taken."""

    def ask(self) -> Float64Array:
        """New members, [population, n]."""
        pairs = self._generator.standard_normal((self.population // 2, self.mean.size))
        many = USED_DIRECTIONS * np.abs(self._generator.standard_normal(len(pairs)))
        many[0] *= FIRST_PAIRS_SHARE
        halves = [self._stretched(noise, int(used)) for noise, used in zip(pairs, np.ceil(many), strict=True)]
        self._moves = np.stack([sign * half for half in halves for sign in (1.0, -1.0)])
        return np.asarray(self.mean + self._size * self._unit * self._moves)

    def tell(self, losses: Float64Array) -> None:
        """Takes a step by the losses of the members that `ask` gave last, [population]."""
        order = np.argsort(losses, kind="stable")
        move = self._weights @ self._moves[order[: self._weights.size]]
        self.mean += self._size * self._unit * move
        self._path *= 1 - self._path_share
        self._path += math.sqrt(self._path_share * (2 - self._path_share) * self._mass) * move
        if self.n_steps % self._steps_between == 0:
            self._take_direction()
        if self._last_losses is not None:
            n_lower, n_as_low = (np.searchsorted(self._last_losses, losses, side) for side in ("left", "right"))
            won = 1.0 - float((n_lower + n_as_low).mean()) / self.population
            self._success += SUCCESS_SHARE * (won - WANTED_SUCCESS - self._success)
            self._size *= math.exp(self._success / SIZE_DAMPING)
        self._last_losses = np.sort(losses)
        self.n_steps += 1
        self._ending.took(losses)

    def why_done(self, tol: float) -> str:
        """The reason why further steps would find nothing, or an empty text.

        `tol` is the difference of losses that counts as none.
        """
        return self._ending.why_flat(tol) or self._ending.why_size(self._size)

    def _stretched(self, noise: Float64Array, n_used: int) -> Float64Array:
        """The product of the factor by the newest directions with this noise [n]."""
        kept, move = math.sqrt(1 - self._learned), noise
        for each in self._directions[-n_used:]:
            move = kept * move + (each.gain * float(each.inverse @ noise)) * each.path
        return move

    def _take_direction(self) -> None:
        """Takes the path among the directions; where there are as many as there may be, one goes.

        That is the later one of the two that are closest in time, if they are closer than n steps, and else the oldest:
        so directions reach back n steps for each of them.
        """
        at = len(self._directions)
        if at == self._most_directions:
            born = [each.born for each in self._directions]
            gaps = np.diff(born)
            at = int(gaps.argmin()) + 1 if gaps.min() < self.mean.size else 0
            del self._directions[at]
        self._directions.append(Direction(self._path.copy(), self.n_steps, self._path))
        kept = 1 - self._learned
        for number in range(at, len(self._directions)):
            each = self._directions[number]
            each.inverse = self._inverted(each.path, number)
            square = float(each.inverse @ each.inverse)
            length = math.sqrt(1 + self._learned / kept * square)
            each.gain = math.sqrt(kept) / square * (length - 1)
            each.inverse_gain = (1 - 1 / length) / (math.sqrt(kept) * square)

    def _inverted(self, path: Float64Array, n_before: int) -> Float64Array:
        """The product of the inverse of the factor by the first directions with a path [n]."""
        kept, inverse = math.sqrt(1 - self._learned), path
        for each in self._directions[:n_before]:
            inverse = inverse / kept - (each.inverse_gain * float(each.inverse @ inverse)) * each.inverse
        return inverse

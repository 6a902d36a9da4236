"""BIPOP: when a search has ended, another one begins, now with a larger population and now with a smaller one.

Source: Hansen, "Benchmarking a BI-Population CMA-ES on the BBOB-2009 Function Testbed", 2009.
"""

from typing import final

import msgspec
import numpy as np

FEW_SEARCHES = 4
"""The second population is four times as large as the first, and not twice, where fewer evaluations are left than this
many times those of the first search: after twice as large a one too few would be left for a larger one."""


class Beginning(msgspec.Struct, frozen=True):
    """How a search begins."""

    population: int
    factor: float
    """The factor on the first deviations."""
    limit: int
    """The most evaluations; 0 means no limit of its own, as large populations have none."""

    @property
    def is_large(self) -> bool:
        """Whether it is one of the searches whose populations double."""
        return self.limit == 0


@final
class RestartPlan:
    """The beginnings of searches, one after another.

    A larger population sees the function's large shape, a smaller one with smaller deviations looks closely elsewhere;
    both kinds are given as many evaluations.
    """

    def __init__(self, population: int, generator: np.random.Generator) -> None:
        self._usual, self._generator = population, generator
        self._n_large, self._is_large = 0, True
        self._used = {True: 0, False: 0}
        self._last_large = 0

    def first(self) -> Beginning:
        """The beginning of the first search, whose population is the usual one."""
        return Beginning(self._usual, 1.0, 0)

    def after(self, n_evaluations: int, n_left: int) -> Beginning:
        """The beginning of the search after one that took so many evaluations, where so many are left for all."""
        is_second = self._n_large == 0
        if not is_second:  # the first search counts for neither
            self._used[self._is_large] += n_evaluations
        if self._is_large:
            self._last_large = n_evaluations
        self._is_large = is_second or self._used[True] <= self._used[False]
        if self._is_large:
            self._n_large += 2 if is_second and n_left < FEW_SEARCHES * n_evaluations else 1
            return Beginning(self._usual * 2**self._n_large, 1.0, 0)
        smaller, nearer = self._generator.random(2)
        population = int(self._usual * (0.5 * 2**self._n_large) ** (smaller**2))
        return Beginning(max(population, 4), 10.0 ** (-2 * nearer), max(self._last_large // 2, population))

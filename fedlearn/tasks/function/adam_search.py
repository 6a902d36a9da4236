"""The evolution strategy of runs as a search that `minimize` may choose."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.evolution import EvolutionStrategy, usual_population

Float64Array = NDArray[np.float64]


@final
class AdamSearch:
    """A search from `start` [n] whose members have these standard deviations [n] at first, a tenth after `steps`."""

    def __init__(
        self,
        start: Float64Array,
        deviations: Float64Array,
        *,
        population: int,
        steps: int,
        generator: np.random.Generator,
    ) -> None:
        self._start, self._deviations = start, deviations
        self.population = population + population % 2
        seed = int(generator.integers(2**31))
        # In units of the deviations: float32 then holds the way from the start, however large the start is.
        self._es = EvolutionStrategy(
            np.zeros(start.size), sigma=1.0, population=self.population, steps=steps, seed=seed
        )

    @staticmethod
    def usual_population(n: int) -> int:
        """The population that `EvolutionStrategy` has by default."""
        return usual_population(n)

    @property
    def mean(self) -> Float64Array:
        """The point around which members are drawn, [n]."""
        return self._start + self._deviations * self._es.weights

    def ask(self) -> Float64Array:
        """New members, [population, n]."""
        return np.asarray(self._start + self._deviations * self._es.ask())

    def tell(self, losses: Float64Array) -> None:
        """Takes a step by the losses of the members that `ask` gave last, [population]."""
        self._es.tell(losses)

    def why_done(self, tol: float) -> str:  # noqa: ARG002 (its steps shrink by a schedule, not by what is found)
        """Gives an empty text: the search ends with its schedule."""
        return ""

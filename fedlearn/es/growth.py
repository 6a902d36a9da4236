"""How large a step is, and how its learning rate follows: a larger population estimates the gradient with less noise.

Source: the square root rule for Adam of Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
Algorithms", arXiv 2205.10287; how far it holds for evolution strategies was tried, see docs/recipe.md.
"""

import math

import msgspec

LEAST_STEP_S = 0.02
"""Seconds of trials in a step, at least, as far as the population may grow: a step takes a few milliseconds on top."""

USUAL_STEP_S = 0.4
"""Seconds of trials in a step that costs nothing in learning: what travels in a step hardly depends on its length."""

LEAST_STEPS = 1500
"""Of a run with a `duration`: with fewer, larger ones it learns less from as many trials."""


class Growth(msgspec.Struct, frozen=True):
    """A population with its learning rate, and the largest rate, at which larger populations stay."""

    population: int
    learning_rate: float
    largest_rate: float
    """At least `learning_rate`."""

    def rate_of(self, population: int) -> float:
        """The learning rate of steps with so many members; a smaller population than this one has the same."""
        return min(self.learning_rate * math.sqrt(max(population / self.population, 1.0)), self.largest_rate)

    @property
    def largest_population(self) -> int:
        """Members at which the rate reaches its largest: more of them learn less from each."""
        if not self.largest_rate > self.learning_rate:
            return self.population
        return round(self.population * (self.largest_rate / self.learning_rate) ** 2)


def usual_step_s(duration_s: float) -> float:
    """Seconds of trials that a step should have in a run that lasts `duration_s`; 0: it has no such end."""
    return min(max(duration_s / LEAST_STEPS, LEAST_STEP_S), USUAL_STEP_S) if duration_s else USUAL_STEP_S

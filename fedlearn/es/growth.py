"""The size of a step, and how its learning rate follows: a larger population estimates the gradient with less noise.

Source: the square root rule for Adam of Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
Algorithms", arXiv 2205.10287; how far it holds for evolution strategies was tried, see docs/recipe.md.
"""

import math

import msgspec

LEAST_STEP_S = 0.02
"""The fewest seconds of trials in a step, where the population may grow: a step takes a few milliseconds on top."""

USUAL_STEP_S = 0.4
"""Seconds of trials in a step that costs nothing in learning: what travels in a step hardly depends on its length."""

LEAST_STEPS = 1500
"""The fewest steps of a run with a `duration`: with fewer, larger ones it learns less from as many trials."""

LARGEST_SHARE_OF_PAST = 1 / 300
"""The largest share of the time that a run has lasted which a step takes: early on, many small steps learn most."""


class Growth(msgspec.Struct, frozen=True):
    """A population whose learning rate is known, and how far the rate follows larger ones."""

    population: int
    largest_factor: float = 1.0
    """The greatest factor on the learning rate, at least 1."""

    def factor_of(self, population: int) -> float:
        """The factor on the learning rate of a step with `population` members; never below 1, where nothing was
        tried."""
        return min(math.sqrt(max(population / self.population, 1.0)), self.largest_factor)

    @property
    def largest_population(self) -> int:
        """The number of members at which the factor is largest; beyond it, each member teaches less."""
        return round(self.population * self.largest_factor**2)


def usual_step_s(duration_s: float, elapsed_s: float) -> float:
    """Seconds of trials in a step after `elapsed_s` of a run that lasts `duration_s`; 0 means a run without an end."""
    longest = min(duration_s / LEAST_STEPS, USUAL_STEP_S) if duration_s else USUAL_STEP_S
    return max(min(LARGEST_SHARE_OF_PAST * elapsed_s, longest), LEAST_STEP_S)


def warmed(n_groups: int, step: int, warmup_steps: int, *, least: int) -> int:
    """The groups of a step while a population rises to `n_groups` over so many steps: one at first, or the `least`.

    Each step has the same share more, so the groups rise evenly with the members that were tried before.
    """
    if step >= warmup_steps:
        return n_groups
    risen = round(math.pow(n_groups, step / warmup_steps))
    return max(risen, min(least, n_groups))

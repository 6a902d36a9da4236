"""Schedules of the learning rate and of sigma during a run, as factors on the configured values.

The server alone computes them; they travel in Assignments and Updates. Source of "inverse-sqrt": Vaswani et al.,
"Attention Is All You Need", arXiv 1706.03762, section 5.3. "late-linear" is constant for the first half of a run, and
falls to 0 in the second, as in Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
Durations", arXiv 2405.18392.
"""

import math
from bisect import bisect_right
from typing import Literal

import msgspec

Decay = Literal["constant", "linear", "cosine"]
LearningRateSchedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "late-linear"]

HOLD_STEPS = 100
"""Number of steps before "inverse-sqrt" begins to fall, because at first a high rate learns fastest."""

LEAST_SIGMA = 0.1
"""The factor on sigma at the end of a run: without perturbations nothing could be learned."""

MOST_FACTOR = 1000.0

STAGES = 20
"""The most stages in which a rate falls that is told to."""


class Schedule(msgspec.Struct, frozen=True):
    """The schedules of a run, and its ends; 0 steps or 0 seconds means no such end."""

    learning_rate: LearningRateSchedule = "constant"
    sigma: Decay = "constant"
    warmup_steps: int = 0
    steps: int = 0
    duration_s: float = 0.0
    factors: tuple[tuple[int, float], ...] = ()
    """Further factors on the learning rate, each from a step on until the next one's, by ascending steps."""


def parse_factors(text: str) -> tuple[tuple[int, float], ...]:
    """The factors of a text such as `0:1 300:0.1`, each behind the step from which it counts.

    Raises:
        ValueError: the text has another form, steps do not ascend, or a factor is not between 0 and 1000.
    """
    found: list[tuple[int, float]] = []
    for word in text.split():
        step, _, factor = word.partition(":")
        try:
            found.append((int(step), float(factor)))
        except ValueError:
            raise ValueError(f"expected STEP:FACTOR, such as 0:1 300:0.1, got {word!r}") from None
        if found[-1][0] < 0 or (len(found) > 1 and found[-1][0] <= found[-2][0]):
            raise ValueError(f"expected steps that ascend from 0 or more, got {word!r}")
        if not 0.0 <= found[-1][1] <= MOST_FACTOR:
            raise ValueError(f"expected factors from 0 to {MOST_FACTOR:g}, got {word!r}")
    return tuple(found)


def falling(factors: tuple[tuple[int, float], ...], start: int, n_steps: int) -> str:
    """The factors as a text that `parse_factors` takes, but that they fall to 0 in `n_steps` steps from `start` on.

    Whoever goes on afterwards has the rate again.
    """
    earlier = [(step, factor) for step, factor in factors if step < start]
    held = next((factor for step, factor in reversed(factors) if step <= start), 1.0)
    n_stages = min(n_steps, STAGES)
    stages = [
        (start + n_steps * stage // n_stages, held * (1.0 - (stage + 0.5) / n_stages)) for stage in range(n_stages)
    ]
    after = [(start + n_steps, held)] if stages else []
    return " ".join(f"{step}:{factor:.4g}" for step, factor in (*earlier, *stages, *after))


def progress(schedule: Schedule, step: int, elapsed_s: float) -> float:
    """The share of the run that is over before `step`, 0 to 1, by the nearer end; 0 for a run without an end."""
    of_steps = step / schedule.steps if schedule.steps else 0.0
    of_time = elapsed_s / schedule.duration_s if schedule.duration_s else 0.0
    return min(max(of_steps, of_time), 1.0)


def learning_rate_factor(schedule: Schedule, step: int, elapsed_s: float) -> float:
    """The factor on the learning rate, 0 to 1 but for `factors`; 0 at the very end of a run, unless the rate is
    constant."""
    warmth = min((step + 1) / schedule.warmup_steps, 1.0) if schedule.warmup_steps else 1.0
    if n_begun := bisect_right(schedule.factors, step, key=lambda factor: factor[0]):
        warmth *= schedule.factors[n_begun - 1][1]
    if schedule.learning_rate == "inverse-sqrt":
        held = max(HOLD_STEPS, schedule.warmup_steps)
        return warmth * math.sqrt(held / max(step + 1, held))
    if schedule.learning_rate == "late-linear":
        return warmth * min(2.0 * (1.0 - progress(schedule, step, elapsed_s)), 1.0)
    return warmth * _decayed(schedule.learning_rate, progress(schedule, step, elapsed_s))


def sigma_factor(schedule: Schedule, step: int, elapsed_s: float) -> float:
    """The factor on sigma, from LEAST_SIGMA to 1."""
    decayed = _decayed(schedule.sigma, progress(schedule, step, elapsed_s))
    return LEAST_SIGMA + (1.0 - LEAST_SIGMA) * decayed


def _decayed(decay: Decay, done: float) -> float:
    """The factor after the share `done` of the run, which falls from 1 to 0."""
    match decay:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - done
        case "cosine":
            return (1.0 + math.cos(math.pi * done)) / 2.0

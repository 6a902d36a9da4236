"""The settings by which policies learn where the user has none: how long the noise and the steps are, and how many
members a step has."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from fedlearn.tasks.task import Setting


class Noise(msgspec.Struct, frozen=True):
    """How far members are from the weights that they are drawn around."""

    length: float
    """The length of the noise, all weights together."""
    speed: float
    """The greatest step as a share of that length."""
    group_size: int
    fewest_members: int
    """The least number of members of a step."""
    momentum: float = 0.9
    shaping: str = "centered-ranks"
    """How returns become utilities."""


LARGE_NOISE: Final = Noise(13.0, 0.12, group_size=8, fewest_members=8)
"""Small noise stays in the poor optima in which many a policy begins."""

SMALL_NOISE: Final = Noise(0.3, 1 / 3, group_size=16, fewest_members=32)
"""Large actions of many joints at random rarely do any good: they teach a body to throw itself about."""

CHOICE_NOISE: Final = Noise(3.0, 1.0, group_size=8, fewest_members=8, momentum=0.0, shaping="normalized")
"""The largest output is the action, so noise counts only by its length beside that of the weights, which long steps
soon exceed; and a few members may do far better than all others, which ranks do not tell."""

CHOICE_NOISE_FROM_ZERO: Final = msgspec.structs.replace(CHOICE_NOISE, length=0.3)
"""All outputs are zero at first, so any noise makes all choices."""

FEWEST_JOINTS: Final = 3
"""The numbers of a continuous action from which on noise is small."""

STEP_INTERACTIONS: Final = 2000
"""Interactions that a step has at least, if episodes are as long as they may be; what returns tell of more of them is
learned sooner in the steps after it."""

MOST_MEMBERS: Final = 64

LONGEST_STEP: Final = 1.0
"""What steps may grow to as members do, as a share of the noise."""

RESTARTS: Final = 3
"""Large noise finds a way or none within some fifty steps."""


def noise_for(*, n_joints: int, is_choice: bool, starts_at_zero: bool) -> Noise:
    """The noise of a policy whose actions are `n_joints` continuous numbers, or choices among outputs, which may all be
    zero at first."""
    if is_choice:
        return CHOICE_NOISE_FROM_ZERO if starts_at_zero else CHOICE_NOISE
    return SMALL_NOISE if n_joints >= FEWEST_JOINTS else LARGE_NOISE


def settings_for(
    noise: Noise, *, n_weights: int, fewest_members: float, threshold: float | None
) -> Mapping[str, Setting]:
    """The settings for a policy of `n_weights` that learns by this noise.

    A step has `fewest_members`, as far as `MOST_MEMBERS` allow, and never fewer than its noise asks for. `threshold` is
    the return from which on the environment counts as solved, where it is known.
    """
    n_groups = math.ceil(max(fewest_members, noise.fewest_members) / noise.group_size)
    n_members = min(n_groups * noise.group_size, MOST_MEMBERS)
    deviation = noise.length / math.sqrt(n_weights)
    rate = noise.speed * deviation
    again: Mapping[str, Setting] = {}
    if noise is LARGE_NOISE and threshold is not None:
        again = {"restarts": RESTARTS, "target_loss": -threshold}
    return {
        **again,
        "optimizer": "clipup",
        "sigma": deviation,
        "learning_rate": rate,
        "max_learning_rate": rate * max(min(math.sqrt(MOST_MEMBERS / n_members), LONGEST_STEP / noise.speed), 1.0),
        "learning_rate_schedule": "constant",
        "beta1": noise.momentum,
        "group_size": noise.group_size,
        "population_limit": n_members,
        "max_population": MOST_MEMBERS,
        "antithetic": True,
        "rank": 0,
        "fitness_shaping": noise.shaping,
    }

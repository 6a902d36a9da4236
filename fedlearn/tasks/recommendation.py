"""What a run of a user's task chooses itself where neither the task nor the configuration says, and why."""

import math

from fedlearn.config import MAX_MEMBERS, MAX_POPULATION, RunConfig, StrategySettings
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.kind import Measure
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task_objective import TaskObjective

GROUP_SIZE = 32
SIGMA = 0.02
LEARNING_RATE = 0.01

STEP_S = 0.2
"""Of trials a step: what else a step costs is a few milliseconds, and learning wants many steps."""

LEAST_GROUPS = 4
MOST_GROUPS = 128
GROWTH = 16
"""How many times larger the population may become as volunteers join."""

DEADLINE_S = (10.0, 3600.0)
"""The shortest and longest `time_per_step`; it only cuts stragglers, since steps close when the population is in."""


def settle(config: RunConfig, objective: TaskObjective, data: Columns, measure: Measure) -> tuple[RunConfig, Reasons]:
    """The configuration with a value for each automatic key, and the reason for each that was chosen here."""
    reasons = []
    for key, value in (
        ("group_size", _group_size(config.strategy)),
        ("sigma", SIGMA),
        ("learning_rate", LEARNING_RATE),
    ):
        if not config.get(key):
            config = config.replace({key: value})
            reasons.append(Reason("a starting point for networks with weights of about 0.1 to 1", key, f"{value:g}"))
    if config.is_settled:
        return config, tuple(reasons)
    members_per_s = measure(objective, strategy_of(config), data)
    reasons.append(Reason(f"measured: {members_per_s * objective.work_per_member:.3g} trial-{objective.unit}/s"))
    if not config.strategy.population_limit:
        limit, most = _population(config.strategy, members_per_s)
        config = config.replace({"population_limit": limit, "max_population": most})
        why = f"{STEP_S:g} s of trials, {LEAST_GROUPS} to {MOST_GROUPS} groups"
        reasons.append(Reason(why, "population_limit", str(limit)))
    if not config.strategy.time_per_step:
        expected_s = config.strategy.population_limit / members_per_s
        deadline = min(max(float(math.ceil(4.0 * expected_s)), DEADLINE_S[0]), DEADLINE_S[1])
        config = config.replace({"time_per_step": deadline})
        why = f"four times the {expected_s:.2g} s that this machine needs"
        reasons.append(Reason(why, "time_per_step", f"{deadline:g}"))
    return config, tuple(reasons)


def _group_size(strategy: StrategySettings) -> int:
    """GROUP_SIZE, or the next smaller power of two that a population which was given can hold."""
    size = GROUP_SIZE
    while size > (strategy.population_limit or strategy.max_population or size):
        size //= 2
    return size


def _population(strategy: StrategySettings, members_per_s: float) -> tuple[int, int]:
    """Members of a step now, and as volunteers join; whole groups, and no more than an estimate can add up."""
    size = strategy.group_size
    largest = min(MAX_POPULATION, MAX_MEMBERS // max(strategy.rank, 1))
    largest = min(strategy.max_population or largest, largest) // size * size
    groups = min(max(int(STEP_S * members_per_s / size), LEAST_GROUPS), MOST_GROUPS)
    limit = min(groups * size, largest)
    return limit, strategy.max_population or min(GROWTH * limit, largest)

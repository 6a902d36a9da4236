"""Settings that a run of a user's task chooses, with reasons, where neither task nor configuration has a value."""

import math

import numpy as np

from fedlearn.config import MAX_MEMBERS, MAX_POPULATION, RunConfig, StrategySettings
from fedlearn.es.optimizers import OPTIMIZERS, optimizer_name
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.function import noisy
from fedlearn.tasks.kind import Measure
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import ROWS_BY_LOSSES
from fedlearn.tasks.user.first_step import SHARE_OF_BEST, longer_by_losses
from fedlearn.tasks.user.gradient_settings import TUNING_SHARE, settle_gradients, with_deadline
from fedlearn.tasks.user.measure_choice import choose_measure
from fedlearn.tasks.user.task_objective import TaskObjective

GROUP_SIZE = 32
SIGMA = 0.02
LEARNING_RATE = 0.01
"""Adam's."""

TUNING_SIGMA = 0.003
"""The deviation of noise where learning begins with good weights."""

STEP_S = 0.2
"""Seconds of one machine's trials; a population may grow to GROWTH times as many."""

CHEAP_MEMBERS = 128
"""The number of members in STEP_S from which on they are cheap, so that a step may have as few as suit the task."""

LEAST_GROUPS = 4
MOST_GROUPS = 128
EXACT_SHARE = 0.5
NOISY_SHARE = 100.0
"""The most members that the path of such a function counts, in multiples of its parameters; see the optimizer cma."""
GROWTH = 16
"""The factor by which the population may grow as volunteers join."""

LONGEST_S = 10.0
"""Seconds that a group takes at most: it is halved for that, down to LEAST_GROUP_SIZE."""

LEAST_GROUP_SIZE = 4

STEADY = 1.5
"""The greatest learning rate, in usual ones, at which the noise of a step of GROUP_SIZE members does little harm."""

FIRST_STEP_S = 0.25
"""Seconds of the trials from which it is estimated how long steps may be, or one group."""

LONGEST_FIRST_STEP_S = 1.0
"""Seconds of one group from which on nothing is tried: a run is to begin soon."""


def settle(config: RunConfig, objective: TaskObjective, data: Columns, measure: Measure) -> tuple[RunConfig, Reasons]:
    """The configuration with a value for each automatic key, and the reasons for those that were chosen here."""
    config, chosen = choose_measure(config, objective, data)
    if config.strategy.measure == "gradients":
        return settle_gradients(config, objective, data, measure, chosen)
    reasons = list(chosen)
    objective = objective.measuring("losses")
    is_correlated, is_group_open = objective.layout.is_correlated, not config.strategy.group_size
    is_rate_open = not config.optimizer.learning_rate
    usual = objective.task.usual_population
    optimizer = OPTIMIZERS[optimizer_name(config.optimizer.optimizer)]
    sigma, rate = config.strategy.sigma or SIGMA, LEARNING_RATE
    why = "a starting point for networks with weights of about 0.1 to 1"
    if objective.task.is_tuned:
        sigma, rate = config.strategy.sigma or TUNING_SIGMA, TUNING_SHARE * LEARNING_RATE
        why = "good weights are tuned by small steps"
    # A loss may take an hour: it is not asked for twice where the size of a step is given, and counts as noisy then.
    may_be_noisy = is_correlated and (config.strategy.population_limit > 0 or _is_noisy(objective))
    if is_correlated:
        why = "usual where noise learns the shape of a valley"
        if not config.get("path_share"):
            config = config.replace({"path_share": NOISY_SHARE if may_be_noisy else EXACT_SHARE})
    for key, value in (
        ("group_size", _group_size(config.strategy, usual, usual if is_correlated else GROUP_SIZE)),
        ("sigma", sigma),
        ("learning_rate", optimizer.rate_to_sigma * sigma or rate * optimizer.rate_to_adam),
    ):
        if not config.get(key):
            config = config.replace({key: value})
            reasons.append(Reason(why, key, f"{value:g}"))
    if config.is_settled:
        return config, tuple(reasons)
    members_per_s = measure(objective, strategy_of(config), data)
    reasons.append(Reason(f"measured: {members_per_s * objective.work_per_member:.3g} trial-{objective.unit}/s"))
    if objective.task.data and (rows := objective.batch_size) > ROWS_BY_LOSSES:
        why = f"a loss is of {rows} rows (batch_size); by losses of about {ROWS_BY_LOSSES} most is learned"
        reasons.append(Reason(why, "measure", "losses"))
    elif objective.batch_size == objective.task.batch_size_by_losses and not objective.task.is_tuned:
        why = f"a loss is of {objective.batch_size} rows, since one of more is one number, too; batch_size changes that"
        reasons.append(Reason(why, "measure", "losses"))
    if not config.strategy.population_limit:
        config, own = _with_population(
            config, objective, members_per_s, is_group_open=is_group_open, may_be_noisy=may_be_noisy
        )
        reasons += own
    if is_rate_open and not (usual or optimizer.searches or objective.task.is_tuned):
        config, reasons = _with_longer_steps(config, objective, data, members_per_s, reasons)
    if not config.strategy.time_per_step:
        config = with_deadline(config, config.strategy.population_limit / members_per_s, reasons)
    return config, tuple(reasons)


def _with_longer_steps(
    config: RunConfig, objective: TaskObjective, data: Columns, members_per_s: float, reasons: list[Reason]
) -> tuple[RunConfig, list[Reason]]:
    """The configuration with a greater learning rate where a first step shows that there is far to go, and reasons."""
    size = config.strategy.group_size
    if size > LONGEST_FIRST_STEP_S * members_per_s:
        return config, reasons
    n_groups = max(int(FIRST_STEP_S * members_per_s / size), 1)
    factor = longer_by_losses(objective, strategy_of(config), data, n_groups=n_groups, seed=config.run.seed)
    if factor == 1.0:
        return config, reasons
    usual, larger = config.optimizer.learning_rate, config.strategy.population_limit / GROUP_SIZE
    most = config.optimizer.max_learning_rate or factor * usual
    rate = min(STEADY * math.sqrt(larger) * usual, factor * usual, most)
    best = f"the loss is least after {factor / SHARE_OF_BEST:,.0f} usual steps at once"
    why = f"{best}; it follows the root of the members in a step, up to {most:.3g}"
    others = [reason for reason in reasons if reason.key != "learning_rate"]
    longer = config.replace({"learning_rate": rate, "max_learning_rate": most})
    return longer, [*others, Reason(why, "learning_rate", f"{rate:.3g}")]


def _with_population(
    config: RunConfig, objective: TaskObjective, members_per_s: float, *, is_group_open: bool, may_be_noisy: bool
) -> tuple[RunConfig, Reasons]:
    """The configuration with a population, in smaller groups where members take long, and the reasons."""
    usual, reasons = objective.task.usual_population, list[Reason]()
    if objective.layout.is_correlated:
        is_cheap, n_groups = STEP_S * members_per_s >= CHEAP_MEMBERS, noisy.MOST_GROUPS if may_be_noisy else 1
        limit, most = _population(config.strategy, members_per_s, n_groups * usual, grows=not is_cheap)
        why = "usual where noise learns the shape of a valley"
        if n_groups > 1:
            why = f"{n_groups} groups in the end, since losses have noise of their own"
            steps = noisy.warmup_steps(objective.layout.searched.size, config.strategy.group_size)
            config = config if config.strategy.population_warmup else config.replace({"population_warmup": steps})
    else:
        if is_group_open and (size := _quick_group_size(config.strategy.group_size, members_per_s)):
            config = config.replace({"group_size": size})
            why = f"a larger one takes more than {LONGEST_S:g} s"
            reasons.append(Reason(why, "group_size", str(size)))
        is_cheap = usual > 0 and STEP_S * members_per_s >= CHEAP_MEMBERS
        usual = usual if is_cheap else 0
        least = objective.task.least_groups
        limit, most = _population(config.strategy, members_per_s, usual, grows=not is_cheap, least_groups=least)
        why = "a group for each volunteer, and no more than lines ask for: more steps learn more of so many trials"
        if is_cheap:
            why = f"about two for each of {objective.layout.size} numbers: more steps learn more of so many evaluations"
    reasons.append(Reason(why, "population_limit", str(limit)))
    return config.replace({"population_limit": limit, "max_population": most}), tuple(reasons)


def _is_noisy(objective: TaskObjective) -> bool:
    """Whether two members that are alike have different losses, or groups have rows of their own."""
    if objective.task.data:
        return True
    alike = Trials(0, Perturbation(0.0, 0), group_size=2, first_member=0, n_members=2)
    losses = objective.evaluate(objective.initial_weights(), {}, alike, threads=1)
    return bool(np.isfinite(losses).all() and losses[0] != losses[1])


def _group_size(strategy: StrategySettings, usual: int, size: int) -> int:
    """This size, halved until it fits into the configured or usual population."""
    population = strategy.population_limit or min(filter(None, (strategy.max_population, usual)), default=size)
    while size > population:
        size //= 2
    return size


def _quick_group_size(chosen: int, members_per_s: float) -> int:
    """The group size of a task whose members take long; 0 where the chosen size will do."""
    size = chosen
    while size > LEAST_GROUP_SIZE and size > LONGEST_S * members_per_s:
        size //= 2
    return size if size < chosen else 0


def _population(
    strategy: StrategySettings, members_per_s: float, usual: int, *, grows: bool, least_groups: int = 1
) -> tuple[int, int]:
    """The population now and after volunteers have joined, in whole groups and at most as large as an estimate can sum.

    It has the least groups where there is no usual one. That of cheap members does not grow, because its steps cost
    more outside of trials than in them.
    """
    size = strategy.group_size
    largest = min(MAX_POPULATION, MAX_MEMBERS // max(strategy.rank, 1))
    largest = min(strategy.max_population or largest, largest) // size * size
    limit = min(max(usual // size, least_groups) * size, largest)
    filled = limit if usual else min(max(int(STEP_S * members_per_s / size), LEAST_GROUPS), MOST_GROUPS) * size
    return limit, strategy.max_population or (min(GROWTH * filled, largest) if grows else limit)

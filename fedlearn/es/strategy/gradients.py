"""Steps whose members measure gradients: how long they are, their local steps, and how coarse their sums are."""

import math

import msgspec

from fedlearn.es.attempts import LOWER, Attempt, attempt_by_gradients
from fedlearn.es.optimizers import AnyOptimizer, Sgd
from fedlearn.es.perturbation import MAX_UNIT_BITS, LocalSteps
from fedlearn.es.strategy.population import Population
from fedlearn.es.strategy.settings import Strategy
from fedlearn.es.update import Update

SUM_BITS = 26
"""Bits of the greatest number in a sum of gradients: the next sum may have one that is 32 times as large."""

GRADIENT_STEP_S = 0.004
"""Seconds of gradients in a step: what else a step takes is not much longer."""

GRADIENT_LINE_SHARE = 0.25
"""The share of `least_s` that a step of gradients lasts at least: an exchange then takes about as long."""

AUDITED_LOCAL_STEPS, AUDITED_PLAIN_STEPS = 4, 16
"""The most local steps after which honest machines still agree so well that one can check another; of plain gradient
descent, which does not divide gradients by their length and so leaves small differences small."""

FAST_LINE_STEP_S = 0.1
"""The `line_step_s` below which lines never hold anybody up: exchanges of 10 ms may as well be the work of a busy
machine."""

STILL_SLOW = 0.5
"""The share of it from which on steps stay as they are that slow lines asked for."""

COARSE_FROM = 2.0
"""Steps that would make up for the lines, from which on sums have four bits a parameter."""

FINE_BELOW = 0.5
"""Such steps below which sums have a byte again: a byte takes twice as long, and lines vary."""

FAR = 4.0
"""The factor by which the local steps of the last step are too many or too few before others are taken: on busy
machines both exchanges and gradients take twice as long at one time as at another."""

MOST_GROUPS = 1024
"""The most machines that take local steps in one step of the run, where the population does not grow."""

MOMENTUM_OF_LOCAL_STEPS = 0.5
"""The momentum of the mean of local steps whose optimizer has a state, which is new in each group."""


def gradients_wanted(*, members_per_s: float, least_s: float) -> float:
    """The members of a step that is as short as the lines allow, since many small steps of gradients learn most."""
    return max(GRADIENT_LINE_SHARE * least_s, GRADIENT_STEP_S) * members_per_s


def audited_local_steps(optimizer: AnyOptimizer) -> int:
    """The most local steps by this optimizer whose results can be audited."""
    return AUDITED_LOCAL_STEPS if optimizer.slots else AUDITED_PLAIN_STEPS


def population_of_gradients(
    population: Population,
    strategy: Strategy,
    last: Update | None,
    *,
    line_step_s: float,
    n_machines: int,
    member_s: float,
) -> Population:
    """The population of a step that measures gradients, by that of a step without local ones; see `ask`."""
    if strategy.attempts.restarts and (attempt := _attempt_after(last, population.step)) is not None:
        optimizer = population.optimizer.lowered(LOWER ** (attempt.number - 1))
        population = msgspec.structs.replace(population, attempt=attempt, optimizer=optimizer)
    slow_from_s = FAST_LINE_STEP_S * (STILL_SLOW if _gave_way(strategy, last) else 1.0)
    is_slow = member_s > 0.0 and line_step_s >= slow_from_s
    wanted = GRADIENT_LINE_SHARE * line_step_s / (member_s * strategy.population_limit) if is_slow else 0.0
    n_local = strategy.local_steps or _local_steps_wanted(strategy, last, wanted)
    bits = strategy.sum_bits or _sum_bits_wanted(strategy, last, wanted, n_local)
    if n_local > 1:
        population = _with_local_steps(population, strategy, n_local, n_machines)
    perturbation = msgspec.structs.replace(
        population.perturbation,
        unit_bits=_unit_bits_after(last, otherwise=population.perturbation.unit_bits),
        sum_bits=bits,
        pass_members=population.limit,
    )
    return msgspec.structs.replace(population, perturbation=perturbation)


def _attempt_after(last: Update | None, step: int) -> Attempt | None:
    if last is None:
        return Attempt(1, step)
    return attempt_by_gradients(last.attempt, step=step) if last.attempt is not None else None


def _gave_way(strategy: Strategy, last: Update | None) -> bool:
    """Whether the last step had local steps or coarse sums for the sake of the lines."""
    if last is None:
        return False
    has_local_steps = not strategy.local_steps and last.group_size > strategy.population_limit
    return has_local_steps or (not strategy.sum_bits and last.estimate.is_packed)


def _unit_bits_after(last: Update | None, *, otherwise: int) -> int:
    """The unit in which gradients are counted, which follows from the greatest number of the last sum."""
    if last is None or not last.estimate.is_there or last.gradient_scale <= 0.0:
        return otherwise
    # gradient_scale is what one unit of the sum is worth in the mean over its groups.
    unit_bits = -round(math.log2(last.gradient_scale * max(last.n_members // last.group_size, 1)))
    spare_bits = SUM_BITS - last.estimate.bits
    return min(max(unit_bits + spare_bits, 0), MAX_UNIT_BITS)


def _local_steps_wanted(strategy: Strategy, last: Update | None, wanted: float) -> int:
    """The number of local steps of a machine, a power of two, by the `wanted` steps that would make up for the lines.

    The number of the last step stays unless it is far from what the lines ask for now.
    """
    before = 1 if last is None else max(last.group_size // strategy.population_limit, 1)
    if before / FAR < wanted < FAR * before and before <= strategy.most_local_steps:
        return before
    return int(min(2.0 ** math.floor(math.log2(max(wanted, 1.0))), strategy.most_local_steps))


def _sum_bits_wanted(strategy: Strategy, last: Update | None, wanted: float, n_local: int) -> int:
    """The bits of a parameter in a sum; those of the last step stay unless the lines clearly ask for others."""
    if n_local > 1 and not strategy.coarse_local_steps:
        return 8
    is_coarse = last is not None and last.estimate.is_packed
    return 4 if wanted >= (FINE_BELOW if is_coarse else COARSE_FROM) else 8


def _with_local_steps(population: Population, strategy: Strategy, n_local: int, n_machines: int) -> Population:
    """The population in which each machine takes so many local steps, and the run takes their mean."""
    each = strategy.population_limit
    n_groups = max(min(n_machines, strategy.max_population // each or MOST_GROUPS), 1)
    steps = LocalSteps(population.optimizer, each)
    return msgspec.structs.replace(
        population,
        perturbation=msgspec.structs.replace(population.perturbation, local_steps=steps),
        group_size=n_local * each,
        limit=n_groups * n_local * each,
        optimizer=_mean_of_local_steps(steps.optimizer),
        # The mean has a rate of 1, and decays weights as local steps would.
        weight_decay=1.0 - (1.0 - steps.optimizer.learning_rate * population.weight_decay) ** n_local,
    )


def _mean_of_local_steps(local: AnyOptimizer) -> Sgd:
    """The optimizer of a run whose volunteers take local steps by this one: the mean of their ways.

    Momentum makes up for the state that is lost between two exchanges. Where there is none to lose, as in plain
    gradient descent, a lone volunteer's steps are those that it would take without any exchange.
    """
    return Sgd(1.0, MOMENTUM_OF_LOCAL_STEPS if local.slots else 0.0)

"""How long the first step of a run may be: data that nobody has scaled want longer ones than most."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.perturbation import LocalSteps, Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import Strategy, ask, tell
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.task import LossGradients
from fedlearn.tasks.user.local_steps import local_steps
from fedlearn.tasks.user.task_objective import TaskObjective

USUAL = 3.0
"""The multiple of a step up to which the loss of most networks falls."""

FACTORS = tuple(10.0 ** (n / 2) for n in range(15))
"""Factors that are tried in turn while the loss falls."""

FINE_FACTORS = tuple(10.0 ** (n / 4) for n in range(29))
"""The same for steps by losses."""

WORTH = 1.5
"""The least multiple of what a usual first step saves that a longer one has to save: what more it saves is little
beside the harm that such steps do later on."""

FARTHER = 100.0
"""The multiple of the best step after which a loss that has no bound is greater than before the step; one that has a
bound, as behind a sigmoid, only falls so far because what it sees is saturated."""

SHARE_OF_BEST = 0.1
"""The length of a step by losses as a share of the best first one: most of each is noise, which adds up."""

MOST_GROUPS = 8
"""The most groups by whose rows a step is tried."""


def longer(objective: TaskObjective, optimizer: AnyOptimizer, data: Columns, *, n_groups: int) -> float:
    """The factor by which steps may be longer than the optimizer's: 1 for most networks.

    It is the one, of FACTORS, by which USUAL steps at once lead to the least loss of their own rows, if that is worth
    it; 1 where that loss has no least value, as a critic's, or a greatest one.

    Raises:
        NoGradientError: only losses of the task are known.
    """
    weights = objective.initial_weights()
    n_groups = min(n_groups, MOST_GROUPS)

    def found(at: Float32Array, _first: int = 0) -> LossGradients:
        return objective.first_gradient(at, data, n_groups=n_groups)

    first = local_steps(objective.layout, weights, LocalSteps(optimizer, n_groups), found, n_members=n_groups)

    @cache  # a gradient may take seconds
    def loss_after(factor: float) -> float:
        return float(found(weights - np.float32(USUAL * factor) * first.total).losses.mean())

    before = float(first.losses.mean())
    if not loss_after(FACTORS[1]) < before:
        return 1.0  # so it is with most networks, whose gradients may take seconds
    return _best(loss_after, FACTORS, before)


def longer_by_losses(objective: TaskObjective, strategy: Strategy, data: Columns, *, n_groups: int, seed: int) -> float:
    """The factor by which steps by losses may be longer than those of the strategy, at least 1.

    A first step is taken as in a run, by `n_groups` or a few, and then its length is varied.
    """
    limit = min(n_groups, MOST_GROUPS) * strategy.group_size
    strategy = msgspec.structs.replace(strategy, population_limit=limit, schedule=Schedule())
    block = block_name(data)
    holding = Holding(objective, seed=seed, blocks={block: data})
    holding.begin(0, keeps_start=strategy.keeps_start)
    population, start = ask(strategy, 0, None), holding.replica.weights.copy()
    trials = Trials(0, population.perturbation, population.group_size, 0, population.limit)
    losses = holding.evaluate(trials, block).losses
    spans = ((0, population.limit),)
    holding.apply(tell(strategy, population, block=block, spans=spans, losses=losses, duration_s=0.0))
    way = holding.replica.weights - start
    unperturbed = Trials(0, Perturbation(0.0, 0), 1, 0, trials.n_groups)

    def loss_after(factor: float) -> float:
        return float(objective.evaluate(start + np.float32(factor) * way, data, unperturbed, threads=0).mean())

    return max(_best(loss_after, FINE_FACTORS, loss_after(0.0)) * SHARE_OF_BEST, 1.0)


def _best(loss_after: Callable[[float], float], factors: Sequence[float], before: float) -> float:
    """The one of these factors, of which the first is 1, tried in turn while the loss falls, after which it is least.

    It is 1 where the loss falls for ever, hardly more than after a usual step, or never is above that `before` again.
    """
    losses = [loss_after(factors[0])]
    for best, factor in pairwise(factors):
        losses.append(loss_after(factor))
        if not losses[-1] < losses[-2]:
            is_worth_it = before - losses[-2] >= WORTH * (before - losses[0])
            return best if is_worth_it and not loss_after(FARTHER * best) <= before else 1.0
    return 1.0

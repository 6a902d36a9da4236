"""How long the first step of a run by gradients may be: data that nobody has scaled want longer ones than most."""

import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.perturbation import LocalSteps
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.task import LossGradients
from fedlearn.tasks.user.local_steps import local_steps
from fedlearn.tasks.user.task_objective import TaskObjective

USUAL = 3.0
"""The multiple of a step up to which the loss of most networks falls."""

FACTORS = tuple(10.0 ** (n / 2) for n in range(15))
"""Factors that are tried in turn while the loss falls."""

MOST_GROUPS = 8
"""The most groups by whose rows a step is tried."""


def longer(objective: TaskObjective, optimizer: AnyOptimizer, data: Columns, *, n_groups: int) -> float:
    """The factor by which steps may be longer than the optimizer's: 1 for most networks.

    It is the one, of FACTORS, by which USUAL steps at once lead to the least loss of their own rows; 1 where that loss
    has no least value, as a critic's.

    Raises:
        NoGradientError: only losses of the task are known.
    """
    weights = objective.initial_weights()
    n_groups = min(n_groups, MOST_GROUPS)

    def found(at: Float32Array, _first: int = 0) -> LossGradients:
        return objective.first_gradient(at, data, n_groups=n_groups)

    first = local_steps(objective.layout, weights, LocalSteps(optimizer, n_groups), found, n_members=n_groups)

    def loss_after(factor: float) -> float:
        return float(found(weights - np.float32(USUAL * factor) * first.total).losses.mean())

    if not loss_after(FACTORS[1]) < float(first.losses.mean()):
        return 1.0  # so it is with most networks, whose gradients may take seconds
    best, least = 1.0, np.inf
    for factor in FACTORS:
        loss = loss_after(factor)
        if not loss < least:
            return best
        best, least = factor, loss
    return 1.0

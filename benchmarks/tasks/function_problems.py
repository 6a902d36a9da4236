"""The functions that learners are compared on, and where they begin."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.function.search_space import SearchSpace
from fedlearn.tasks.task import Setting

N_INPUTS, N_HIDDEN, N_ROWS = 8, 20, 256
RESTARTS = 9
"""Restarts where a function has many valleys."""

NETWORK_SETTINGS: Mapping[str, Setting] = {
    "sigma": 0.03,
    "learning_rate": 0.05,
    "population_limit": 16,
    "group_size": 16,
    "antithetic": True,
    "learning_rate_schedule": "linear",
    "sigma_schedule": "linear",
}

Points = NDArray[Any]
"""[points, n_parameters]."""


class Problem(msgspec.Struct, frozen=True):
    """A function, where it is begun, and our settings."""

    losses: Callable[[Points], Points]
    """[points] of [points, n_parameters]."""
    start: Points
    settings: Mapping[str, Setting] | None = None
    """Our settings as a task; None where it chooses."""
    noise: float = 0.0
    """Standard deviation of what is added to each loss that is told."""
    factor: float = 0.0
    """Standard deviation of the logarithm of what each loss that is told is multiplied by."""
    restarts: int = 0
    """Restarts of `fedlearn.minimize`, and of the peers that have some."""

    @property
    def is_noisy(self) -> bool:
        """Whether the same point has another loss each time."""
        return self.noise > 0 or self.factor > 0

    @property
    def sigma(self) -> float:
        """The first standard deviation that `fedlearn.minimize` chooses, which the peers are given."""
        return float(SearchSpace(self.start).usual_deviations()[0])

    def loss(self, point: Points) -> float:
        """The loss of one point [n_parameters], without noise."""
        return float(self.losses(point[np.newaxis])[0])

    def told(self, seed: int) -> Callable[[Points], Points]:
        """What a learner is told of points, with noise of this seed."""
        if not self.is_noisy:
            return self.losses
        random = np.random.default_rng(seed)

        def told(points: Points) -> Points:
            deviations = random.standard_normal(len(points))
            return self.losses(points) * np.exp(self.factor * deviations) + self.noise * deviations

        return told


def rosenbrock(points: Points) -> Points:
    """Zero at ones, at the end of a curved valley."""
    x, after = points[:, :-1], points[:, 1:]
    losses: Points = (100 * (after - x**2) ** 2 + (1 - x) ** 2).sum(axis=1)
    return losses


def rastrigin(points: Points) -> Points:
    """Zero at zero, in a large bowl of many small ones."""
    losses: Points = (10 + points**2 - 10 * np.cos(2 * np.pi * points)).sum(axis=1)
    return losses


def ackley(points: Points) -> Points:
    """Zero at zero, in a narrow funnel of a wavy plain."""
    length, waves = np.sqrt((points**2).mean(axis=1)), np.cos(2 * np.pi * points).mean(axis=1)
    losses: Points = 20 + np.e - 20 * np.exp(-0.2 * length) - np.exp(waves)
    return losses


def sphere(points: Points) -> Points:
    """Zero at zero."""
    losses: Points = (points**2).sum(axis=1)
    return losses


def network(weights: Points, inputs: Points) -> Points:
    """Outputs [points, rows] of networks with one hidden layer for the same rows."""
    ends = np.cumsum([N_INPUTS * N_HIDDEN, N_HIDDEN, N_HIDDEN])
    first, bias, second, last = np.split(weights, ends, axis=1)
    hidden = np.tanh(inputs @ first.reshape(-1, N_INPUTS, N_HIDDEN) + bias[:, np.newaxis])
    outputs: Points = (hidden @ second[:, :, np.newaxis])[:, :, 0] + last
    return outputs


def problems() -> dict[str, Problem]:
    """All problems by name."""
    random = np.random.default_rng(0)
    n_weights = (N_INPUTS + 2) * N_HIDDEN + 1
    inputs = random.standard_normal((N_ROWS, N_INPUTS))
    scale = np.full(n_weights, N_INPUTS**-0.5)
    scale[N_INPUTS * N_HIDDEN :] = N_HIDDEN**-0.5
    wanted = network((2 * scale * random.standard_normal(n_weights))[np.newaxis], inputs)

    def losses(points: Points) -> Points:
        errors: Points = ((network(points, inputs) - wanted) ** 2).mean(axis=1)
        return errors

    start = 0.5 * scale * random.standard_normal(n_weights)
    return {
        "Rosenbrock": Problem(rosenbrock, np.full(100, 0.5)),
        "network": Problem(losses, start, NETWORK_SETTINGS),
        "Rosenbrock 10": Problem(rosenbrock, np.zeros(10)),
        "Rastrigin 20": Problem(rastrigin, np.full(20, 3.0), restarts=RESTARTS),
        "Ackley 30": Problem(ackley, np.full(30, 3.0)),
        "noisy sphere 1000": Problem(sphere, np.ones(1000), noise=1.0),
        "noisy sphere 10": Problem(sphere, np.full(10, 1.5), noise=5.0),
        "sphere 10 times noise": Problem(sphere, np.full(10, 1.5), factor=1.0),
    }

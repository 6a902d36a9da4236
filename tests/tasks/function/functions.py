"""Functions whose least points are known, of points [..., n]."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Points = NDArray[Any]


def sphere(points: Points) -> Points:
    return np.asarray((points**2).sum(axis=-1))


def rosenbrock(points: Points) -> Points:
    x = points
    return np.asarray((100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(axis=-1))


def rastrigin(points: Points) -> Points:
    return np.asarray((10 + points**2 - 10 * np.cos(2 * np.pi * points)).sum(axis=-1))


def noisy_sphere(seed: int) -> Any:  # noqa: ANN401
    random = np.random.default_rng(seed)
    return lambda points: sphere(points) + random.standard_normal(len(points))


def cigar(points: Points) -> Points:
    """A narrow valley along a direction that no number has for itself."""
    return np.asarray(1e4 * sphere(points) - 9_999 * points.sum(axis=-1) ** 2 / points.shape[-1])

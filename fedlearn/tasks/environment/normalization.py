"""Observations in deviations from their mean, and the moments of what each group observed."""

import math
from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.moments import Int64Array, counted

LIMIT = 5.0
"""The number of deviations from the mean at which policies see observations clipped."""

LEAST_DEVIATION = 1e-3
"""The least standard deviation by which observations are divided; those with less are only centred."""

DOUBT = 2.0
"""The number of standard errors within which a mean may as well be zero."""


def moments_of(episodes: Sequence[Float32Array]) -> tuple[Float32Array, Float32Array]:
    """The mean and standard deviation, [*shape] each, of the observations [steps, *shape] of some episodes.

    A mean that a few episodes are too few to tell from zero is taken for zero: policies see most bodies upright there,
    and a false mean is a wish for one action.
    """
    observations = np.concatenate(episodes).astype(np.float64)
    mean = observations.mean(axis=0)
    if len(episodes) > 1:
        means = np.stack([episode.mean(axis=0, dtype=np.float64) for episode in episodes])
        doubt = DOUBT * means.std(axis=0, ddof=1) / math.sqrt(len(episodes))
        mean[np.abs(mean) <= doubt] = 0.0
    deviation = np.sqrt(np.square(observations - mean).mean(axis=0))
    deviation = np.where(observations.std(axis=0) < LEAST_DEVIATION, 1.0, deviation)
    return mean.astype(np.float32), deviation.astype(np.float32)


@final
class Normalization:
    """The mean and standard deviation of observations, [*shape] each."""

    def __init__(self, mean: Float32Array, deviation: Float32Array) -> None:
        self._mean, self._deviation = mean, deviation

    @property
    def n_numbers(self) -> int:
        """The count of numbers of an observation."""
        return self._mean.size

    def deviations(self, observations: Float32Array) -> Float32Array:
        """The observations [..., *shape] in deviations from the mean."""
        return np.asarray((observations - self._mean) / self._deviation)

    def seen(self, observations: Float32Array) -> Float32Array:
        """What policies see of observations [..., *shape]."""
        return np.clip(self.deviations(observations), -LIMIT, LIMIT)


@final
class Observed:
    """The moments of what `n_members` members observe."""

    def __init__(self, normalization: Normalization, n_members: int) -> None:
        self._normalization = normalization
        self._counts = np.zeros(n_members, dtype=np.int64)
        self._sums: Int64Array = np.zeros((n_members, 2 * normalization.n_numbers), dtype=np.int64)

    def add(self, members: NDArray[np.intp], observations: Float32Array, playing: NDArray[np.bool_]) -> None:
        """Adds the observations [members, episodes, *shape] of these members, where their episodes are `playing`."""
        n_members, n_episodes = playing.shape
        units = counted(self._normalization.deviations(observations).reshape(n_members, n_episodes, -1))
        units *= playing[..., np.newaxis]
        self._counts[members] += playing.sum(axis=1)
        self._sums[members] += np.concatenate([units.sum(axis=1), (units * units).sum(axis=1)], axis=1)

    def moments(self) -> Int64Array:
        """The moments of each member, [members, numbers of each]."""
        return np.concatenate([self._counts[:, np.newaxis], self._sums], axis=1)

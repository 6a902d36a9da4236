"""Observations that are not finite, which no policy can act on and of which there is no mean."""

import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.signatures import SourceLine

REMEDY = (
    "let the environment give another number in its place, such as by gymnasium.wrappers.TransformObservation and "
    "numpy.nan_to_num"
)


def is_finite(observation: Float32Array) -> bool:
    """Whether all numbers of an observation are finite."""
    return bool(np.isfinite(observation).all())


def check_first(observation: Float32Array) -> None:
    """Checks the first observation of an environment.

    Raises:
        ValueError: it is not finite.
    """
    if not is_finite(observation):
        raise ValueError(f"env: expected finite observations, got {_broken(observation)} of the first one; {REMEDY}")


def warn_of(observation: Float32Array, made_at: SourceLine) -> None:
    """Warns of an observation that is not finite, at the line that made the task."""
    made_at.warn(
        f"env: expected finite observations, got {_broken(observation)}; members that meet such ones do not count; "
        f"{REMEDY}"
    )


def _broken(observation: Float32Array) -> str:
    """The first number that is not finite, and its place."""
    place = np.argwhere(~np.isfinite(observation))[0].tolist()
    return f"{observation[tuple(place)]} at {place}"

"""Conversions between an environment's spaces and a policy's arrays of float32."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array

Observe = Callable[[Any], Float32Array]
"""A function that converts an observation of the environment to a float32 array of one shape."""

Act = Callable[[NDArray[Any]], NDArray[Any]]
"""A function that converts outputs of policies [..., n] to actions of the environment [..., *shape]."""


def observer(space: spaces.Space[Any]) -> tuple[Observe, tuple[int, ...]]:
    """The conversion of observations to arrays, and their shape; other spaces than boxes are flattened, numbers
    one-hot.

    Raises:
        ValueError: the space has parts that don't flatten to an array.
    """
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, dtype=np.float32), space.shape
    flat: spaces.Space[Any] = space
    with suppress(NotImplementedError):  # raised by spaces of other packages that don't say how
        flat = spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box):
        raise ValueError(
            f"env: expected observations that flatten to an array, got {space}; wrap the environment, "
            "for example in gymnasium.wrappers.FilterObservation"
        )
    return lambda observation: np.asarray(spaces.flatten(space, observation), dtype=np.float32), flat.shape


def n_outputs(space: spaces.Space[Any]) -> int:
    """Number of outputs that a policy gives for one observation.

    Raises:
        ValueError: there is no usual way from numbers to actions of this space.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return int(np.prod(space.shape))
    raise ValueError(f"action: expected a function from outputs to actions of {space}, got none")


def n_joints(space: spaces.Space[Any]) -> int:
    """Number of continuous numbers in an action, 0 where it is not continuous."""
    return int(np.prod(space.shape)) if isinstance(space, spaces.Box) else 0


def is_choice(space: spaces.Space[Any]) -> bool:
    """Whether outputs say by their order or sign alone which action is taken."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def actor(space: spaces.Space[Any]) -> Act:
    """The usual conversion of outputs [..., n] to actions [..., *shape].

    A discrete action is the number of the largest output; of several discrete ones, each has outputs of its own. A
    binary one is 1 where its output is above 0. Outputs from -1 to 1 reach all of a bounded action, and larger ones are
    clipped; where a bound is infinite, outputs are actions.
    """
    n = n_outputs(space)
    if isinstance(space, spaces.Discrete):
        start = space.start
        return lambda outputs: start + outputs.argmax(axis=-1)
    if isinstance(space, spaces.MultiDiscrete):
        return _chosen(space)
    if isinstance(space, spaces.MultiBinary):
        return lambda outputs: (outputs > 0).reshape(*outputs.shape[:-1], *space.shape).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float64).reshape(n), space.high.astype(np.float64).reshape(n)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    least, most = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    middle, reach = (least + most) / 2, (most - least) / 2

    def act(outputs: NDArray[Any]) -> NDArray[Any]:
        actions: NDArray[Any] = np.clip(middle + reach * outputs, low, high)
        return actions.reshape(*outputs.shape[:-1], *space.shape).astype(space.dtype)

    return act


def _chosen(space: spaces.MultiDiscrete) -> Act:
    """The conversion to several discrete actions, whose outputs follow one another."""
    ends = np.cumsum(space.nvec)[:-1]

    def act(outputs: NDArray[Any]) -> NDArray[Any]:
        largest = [own.argmax(axis=-1) for own in np.split(outputs, ends, axis=-1)]
        return (np.stack(largest, axis=-1).reshape(*outputs.shape[:-1], *space.shape) + space.start).astype(space.dtype)

    return act

"""Answers of an environment, which must be those of gymnasium's own."""

import math
from typing import Any

import numpy as np
from gymnasium import Env, spaces

from fedlearn.es.layout import Float32Array

STEP = ("observation", "reward", "terminated", "truncated", "info")
"""The values that `step` gives, in their order."""


def check_spaces(env: Env[Any, Any]) -> None:
    """Checks that an environment names what is observed and what actions there are.

    Raises:
        ValueError: it does not.
    """
    for name in ("observation_space", "action_space"):
        if not isinstance(found := getattr(env, name, None), spaces.Space):
            raise ValueError(
                f"env: expected a gymnasium.Env whose {name} is one of gymnasium.spaces, got {found!r} of a "
                f"{type(env).__name__}; set self.{name} in its __init__"
            )


def began(env: Env[Any, Any], seed: int) -> Any:  # noqa: ANN401
    """The first observation of the episode with this seed.

    Raises:
        ValueError: `reset` gives other values than gymnasium's.
    """
    answer: object = env.reset(seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ValueError(f"env: expected reset to give 2 values, observation and info, got {_described(answer)}")
    return answer[0]


def stepped(env: Env[Any, Any], action: Any) -> tuple[Any, float, bool]:  # noqa: ANN401
    """The observation and the reward after an action, and whether the episode is over.

    Raises:
        ValueError: `step` gives other values than gymnasium's.
    """
    answer: object = env.step(action)
    if not isinstance(answer, tuple) or len(answer) != len(STEP):
        raise ValueError(
            f"env: expected step to give {len(STEP)} values, {', '.join(STEP)}, got {_described(answer)}; where gym "
            "gave `done`, gymnasium tells an end by the task, `terminated`, from one by a limit of time, `truncated`"
        )
    observation, reward, terminated, truncated, _ = answer
    return observation, _number(reward), bool(terminated or truncated)


def fitted(observations: Float32Array, shape: tuple[int, ...], space: spaces.Space[Any]) -> Float32Array:
    """The observations of this space as an array of this shape.

    Raises:
        ValueError: they have another size.
    """
    if observations.size != math.prod(shape):
        raise ValueError(
            f"env: expected observations {list(shape)}, since the observation_space is {space}, got "
            f"{list(observations.shape)}; let the space and what reset and step give agree"
        )
    return observations.reshape(shape)


def _number(reward: Any) -> float:  # noqa: ANN401
    """The reward, which may also be an array of one number."""
    try:
        return float(reward.item() if isinstance(reward, np.ndarray) else reward)
    except (TypeError, ValueError) as error:
        raise ValueError(f"env: expected a number as the reward of a step, got {reward!r}") from error


def _described(answer: object) -> str:
    return f"{len(answer)}" if isinstance(answer, tuple) else f"one of type {type(answer).__name__}"

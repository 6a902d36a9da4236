from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from gymnasium.vector import VectorEnv

from fedlearn.es.layout import Float32Array

Made = Callable[[], gymnasium.Env[Any, Any]]


class Chase(gymnasium.Env[Float32Array, Any]):
    """A point is moved towards a target that the seed decides; whoever reaches it, or has lasted 12 steps, is done."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = action_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        self.seed, self.n_steps, self.actions = seed, 0, []
        super().reset(seed=seed)
        self.place, self.target = 0.0, float(self.np_random.uniform(2.0, 6.0))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.n_steps += 1
        self.place += float(np.asarray(action).reshape(-1)[0])
        return self._seen(), -abs(self.place - self.target), self.place >= self.target, self.n_steps >= 12, {}

    def _seen(self) -> Any:  # noqa: ANN401
        return np.array([self.place, self.target], dtype=np.float32)


@pytest.fixture
def chase() -> Callable[..., Made]:
    """Makes the function that makes a small environment with the action space asked for."""

    def made(action_space: spaces.Space[Any] | None = None) -> Made:
        return lambda: Chase(action_space or spaces.Box(-1.0, 1.0, (1,)))

    return made


class ChaseInArrays(VectorEnv[Any, Any, Any]):
    """So many of the same episodes, side by side."""

    def __init__(self, n_episodes: int) -> None:
        self.num_envs = n_episodes
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,))
        self.metadata, self.render_mode = {"render_fps": 5}, "rgb_array"

    def reset(self, *, seed: Any = None, options: object = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401, ARG002
        assert len(seed) == self.num_envs
        self.targets = np.array([np_random(own)[0].uniform(2.0, 6.0) for own in seed])
        self.places, self.n_steps = np.zeros(self.num_envs), 0
        return self._seen(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401
        assert actions.shape == (self.num_envs, 1)
        self.n_steps += 1
        self.places += actions[:, 0]
        ended = np.full(self.num_envs, self.n_steps >= 12)
        return self._seen(), -abs(self.places - self.targets), self.places >= self.targets, ended, {}

    def render(self) -> tuple[Any, ...]:
        return tuple(np.full((4, 4, 3), self.n_steps, dtype=np.uint8) for _ in range(self.num_envs))

    def _seen(self) -> Any:  # noqa: ANN401
        return np.stack([self.places, self.targets], axis=1).astype(np.float32)


@pytest.fixture
def chase_in_arrays() -> type[ChaseInArrays]:
    """Makes the environment of `chase` for many episodes at once."""
    return ChaseInArrays

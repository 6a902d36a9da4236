"""Augmented random search, version 2, as a peer of policies: linear, with the settings that its authors' program has.

Source: Mania, Guy and Recht, "Simple random search provides a competitive approach to reinforcement learning",
arXiv 1803.07055.
"""

from collections.abc import Callable
from typing import Any, final

import gymnasium
import numpy as np
from numpy.typing import NDArray

N_DIRECTIONS = 8
NOISE, STEP_SIZE = 0.03, 0.02
LEAST_DEVIATION = 1e-7

Float64Array = NDArray[np.float64]
Env = gymnasium.Env[Any, Any]


@final
class RandomSearch:
    """Matrices [outputs, observations] from states that are normalized by all that were seen."""

    def __init__(self, make: Callable[[], Env], *, seed: int, survival_bonus: float = 0.0) -> None:
        self._env, self._survival_bonus = make(), survival_bonus
        self._random = np.random.default_rng(seed)
        space = self._env.action_space
        n_outputs = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else int(np.prod(space.shape or ()))
        n_inputs = int(np.prod(self._env.observation_space.shape or ()))
        self._matrix: Float64Array = np.zeros((n_outputs, n_inputs))
        self._n_seen, self._mean, self._squares = 0, np.zeros(n_inputs), np.zeros(n_inputs)

    def step(self) -> None:
        """Plays both episodes of each direction, and goes along all of them by what these returned."""
        directions = self._random.standard_normal((N_DIRECTIONS, *self._matrix.shape))
        see = self._normalization()
        returns = np.array(
            [[self._learned(self._matrix + sign * NOISE * one, see) for sign in (1, -1)] for one in directions]
        )
        gains = returns[:, 0] - returns[:, 1]
        self._matrix += STEP_SIZE / N_DIRECTIONS * np.tensordot(gains, directions, 1) / (returns.std() + 1e-6)

    def mean_return(self, seeds: range) -> float:
        """The mean return of the policy itself in episodes with these seeds."""
        see = self._normalization()
        return float(np.mean([self._played(self._matrix, see, seed=seed, states=[]) for seed in seeds]))

    def _learned(self, matrix: Float64Array, see: tuple[Float64Array, Float64Array]) -> float:
        states: list[Float64Array] = []
        total = self._played(matrix, see, seed=int(self._random.integers(2**30)), states=states)
        for state in states:  # Welford's
            self._n_seen += 1
            away = state - self._mean
            self._mean = self._mean + away / self._n_seen
            self._squares = self._squares + away * (state - self._mean)
        return total - self._survival_bonus * len(states)

    def _normalization(self) -> tuple[Float64Array, Float64Array]:
        """Mean and deviation of the states that were seen before this step."""
        if self._n_seen < 2:
            return self._mean, np.ones_like(self._mean)
        deviation = np.sqrt(self._squares / (self._n_seen - 1))
        return self._mean, np.where(deviation < LEAST_DEVIATION, np.inf, deviation)

    def _played(
        self, matrix: Float64Array, see: tuple[Float64Array, Float64Array], *, seed: int, states: list[Float64Array]
    ) -> float:
        """The return of an episode, whose states are added to `states`."""
        (mean, deviation), space = see, self._env.action_space

        def act(seen: Any) -> Any:  # noqa: ANN401
            states.append(np.asarray(seen, dtype=np.float64).reshape(-1))
            outputs = matrix @ ((states[-1] - mean) / deviation)
            if isinstance(space, gymnasium.spaces.Box):
                return np.clip(outputs.reshape(space.shape), space.low, space.high).astype(space.dtype)
            return int(outputs.argmax())

        return play(self._env, act, seed=seed)


def play(env: Env, act: Callable[[Any], Any], *, seed: int) -> float:
    """The return of the episode of this seed."""
    seen, total, is_over = env.reset(seed=seed)[0], 0.0, False
    while not is_over:
        seen, reward, terminated, truncated, _ = env.step(act(seen))
        total, is_over = total + float(reward), terminated or truncated
    return total

"""Episodes of many members in lockstep: one batched call of their policies serves all environments."""

import math
from collections.abc import Callable, Iterator
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import Env
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.normalization import Observed
from fedlearn.tasks.environment.policy import Forward, Stacked
from fedlearn.tasks.environment.spaces import Act, actor, n_outputs, observer
from fedlearn.tasks.film import Film, Picture

DROP_BELOW = 0.5
"""The share of members still playing below which the others leave the batch; leaving copies weights, so it is rare."""

MEASURED_EPISODES = 8
MEASURED_STEPS = 1000
"""The most steps of each measured episode."""

LEAST_DEVIATION = 1e-3
"""The least standard deviation by which observations are divided; those with less are only centred."""

FRAMES_PER_S = 30.0
"""Frames per second of a film whose environment names no other number."""

MakeEnv = str | Callable[[], Env[Any, Any]]


@final
class Episodes:
    """Episodes of one environment, of which a copy is made for each episode that is played at the same time."""

    def __init__(self, env: MakeEnv, *, action: Act | None, max_steps: int) -> None:
        self._make, self._max_steps = env, max_steps
        self._envs = [_made(env)]
        self.action_space = self._envs[0].action_space
        self._observe, self.observation_shape = observer(self._envs[0].observation_space)
        self._n_outputs = None if action else n_outputs(self.action_space)
        self.act = action or actor(self.action_space)

    def returns(
        self,
        seeds: NDArray[np.int64],
        policies: Callable[[Stacked], Forward],
        stacked: Stacked,
        observed: Observed | None = None,
    ) -> NDArray[np.float64]:
        """The sum of rewards of an episode for each of `seeds`, both [members, episodes].

        What members observe is added to `observed`.
        """
        n_members, n_episodes = seeds.shape
        while len(self._envs) < seeds.size:
            self._envs.append(_made(self._make))
        seen = np.stack(
            [self._observe(env.reset(seed=int(s))[0]) for env, s in zip(self._envs, seeds.flat, strict=False)]
        )
        seen = seen.reshape(n_members, n_episodes, *self.observation_shape)
        total, running = np.zeros(seeds.shape), np.ones(seeds.shape, dtype=bool)
        playing, forward = np.arange(n_members), policies(stacked)
        for _ in range(self._max_steps):
            still = np.flatnonzero(running.any(axis=1))
            if not still.size:
                break
            if still.size < DROP_BELOW * playing.size:
                playing, forward = still, policies({name: array[still] for name, array in stacked.items()})
            if observed is not None:
                observed.add(playing, seen[playing], running[playing])
            actions = self.act(self._checked(forward(seen[playing]), (len(playing), n_episodes)))
            rows, episodes = np.nonzero(running[playing])
            places = zip(playing[rows].tolist(), episodes.tolist(), actions[rows, episodes], strict=True)
            for member, episode, action in places:
                env = self._envs[member * n_episodes + episode]
                observation, reward, terminated, truncated, _ = env.step(action)
                seen[member, episode] = self._observe(observation)
                total[member, episode] += float(reward)
                running[member, episode] = not (terminated or truncated)
        return total

    def n_in(self, interactions: int) -> int:
        """Number of episodes that have so many interactions if each is as long as it may be."""
        spec = self._envs[0].spec
        longest = min(spec.max_episode_steps or self._max_steps, self._max_steps) if spec else self._max_steps
        return math.ceil(interactions / longest)

    def player(self, forward: Forward) -> Callable[[Any], Any]:
        """A function from an observation to the action of the only member."""

        def action(observation: Any) -> Any:  # noqa: ANN401
            outputs = forward(self._observe(observation)[np.newaxis, np.newaxis])
            return self.act(self._checked(outputs, (1, 1)))[0, 0]

        return action

    def film(self, forward: Forward, *, seed: int) -> Film:
        """One episode of the only member, drawn by the environment.

        Raises:
            ValueError: the environment draws no frames.
        """
        named = isinstance(self._make, str)
        env = gymnasium.make(self._make, render_mode="rgb_array") if isinstance(self._make, str) else _made(self._make)
        if env.render_mode != "rgb_array":
            remedy = "name one that does" if named else "make it with render_mode='rgb_array' while it is filmed"
            raise ValueError(f"env: expected one that draws frames, got {env.render_mode} as its render_mode; {remedy}")
        fps = float(env.metadata.get("render_fps", FRAMES_PER_S))
        return Film(fps, self._frames(env, self.player(forward), seed))

    def _frames(self, env: Env[Any, Any], act: Callable[[Any], Any], seed: int) -> Iterator[Picture]:
        observation, total = env.reset(seed=seed)[0], 0.0
        yield Picture(_drawn(env), total)
        for _ in range(self._max_steps):
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            yield Picture(_drawn(env), total)
            if terminated or truncated:
                break
        env.close()

    def measure(self) -> tuple[Float32Array, Float32Array]:
        """The mean and standard deviation of observations under random actions."""
        env = self._envs[0]
        self.action_space.seed(0)
        seen = []
        for episode in range(MEASURED_EPISODES):
            seen.append(self._observe(env.reset(seed=episode)[0]))
            for _ in range(MEASURED_STEPS):
                observation, _, terminated, truncated, _ = env.step(self.action_space.sample())
                seen.append(self._observe(observation))
                if terminated or truncated:
                    break
        observations = np.stack(seen).astype(np.float64)
        deviation = observations.std(axis=0)
        deviation = np.where(deviation < LEAST_DEVIATION, 1.0, deviation)
        return observations.mean(axis=0).astype(np.float32), deviation.astype(np.float32)

    def _checked(self, outputs: NDArray[Any], batch: tuple[int, int]) -> NDArray[Any]:
        """Checks that there is one output for each episode, of the size that actions need."""
        if outputs.shape[:2] == batch and self._n_outputs in (None, outputs.shape[2] if outputs.ndim == 3 else 0):
            return outputs
        wanted = "..." if self._n_outputs is None else self._n_outputs
        found = ", ".join(map(str, ("episodes", *outputs.shape[2:])))
        raise ValueError(
            f"policy: expected outputs [episodes, {wanted}] for actions of {self.action_space}, got [{found}]; "
            f"an observation is {list(self.observation_shape)}"
        )


def _made(env: MakeEnv) -> Env[Any, Any]:
    """A new environment.

    Raises:
        ValueError: gymnasium knows no such name, or lacks what it needs.
    """
    if callable(env):
        return env()
    try:
        return gymnasium.make(env, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"env: expected a name that gymnasium can make, got {env!r}: {error}") from error


def _drawn(env: Env[Any, Any]) -> NDArray[np.uint8]:
    """The environment's picture of its state, [height, width, 3].

    Raises:
        ValueError: a package with which it draws is missing.
    """
    try:
        return np.asarray(env.render(), dtype=np.uint8)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(f"env: expected all packages with which it draws, and one is missing: {error}") from error

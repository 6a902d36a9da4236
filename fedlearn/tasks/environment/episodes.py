"""Episodes of many members in lockstep: one batched call of their policies serves all of them."""

import math
from collections.abc import Callable, Iterator
from typing import Any, final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.finite import check_first, is_finite, warn_of
from fedlearn.tasks.environment.normalization import Observed, moments_of
from fedlearn.tasks.environment.policy import Forward, Stacked
from fedlearn.tasks.environment.side_by_side import Copies, MakeEnv, Playing, Vectors, environments
from fedlearn.tasks.environment.spaces import Act, actor, is_choice, n_joints, n_outputs
from fedlearn.tasks.film import Film, Picture
from fedlearn.tasks.signatures import SourceLine

DROP_BELOW = 0.5
"""The share of members still playing below which the others leave the batch; leaving copies weights, so it is rare."""

FEWEST_MEASURED = 8
"""The least number of episodes that are measured."""

MOST_MEASURED = 64

MEASURED_OBSERVATIONS = 8000
"""The number of observations that are enough of them."""

MEASURED_STEPS = 1000
"""The most steps of each measured episode."""

FRAMES_PER_S = 30.0
"""Frames per second of a film whose environment names no other number."""


@final
class Episodes:
    """Episodes of one environment, which are played side by side."""

    def __init__(self, env: MakeEnv, *, action: Act | None, max_steps: int, made_at: SourceLine) -> None:
        """`made_at` is the line that warnings are of."""
        self._make, self._max_steps, self._made_at = env, max_steps, made_at
        self._envs = environments(env)
        self.observation_shape = self._envs.observation_shape
        self.n_outputs = None if action else n_outputs(self._envs.action_space)
        self.n_joints = 0 if action else n_joints(self._envs.action_space)
        self.is_choice = not action and is_choice(self._envs.action_space)
        self.act = action or actor(self._envs.action_space)
        spec = self._envs.first.spec
        self.threshold = spec.reward_threshold if spec else None
        """The return from which on the environment counts as solved, where it names one."""
        self._has_warned = False

    def returns(
        self,
        seeds: NDArray[np.int64],
        policies: Callable[[Stacked], Forward],
        stacked: Stacked,
        observed: Observed | None = None,
        *,
        survival_bonus: float = 0.0,
    ) -> NDArray[np.float64]:
        """The sum of rewards less this bonus of an episode for each of `seeds`, both [members, episodes].

        What members observe is added to `observed`. An episode ends where a member would have to act on an observation
        that is not finite, and its return is nan.
        """
        n_members, n_episodes = seeds.shape
        playing = self._envs.begin(seeds.ravel().tolist())
        seen = playing.observations.reshape(n_members, n_episodes, *self.observation_shape)
        total, running = np.zeros(seeds.size), playing.running.reshape(seeds.shape)
        members, forward = np.arange(n_members), policies(stacked)
        for _ in range(self._max_steps):
            total[self._ended_broken(playing)] = np.nan
            still = np.flatnonzero(running.any(axis=1))
            if not still.size:
                break
            if still.size < DROP_BELOW * members.size:
                members, forward = still, policies({name: array[still] for name, array in stacked.items()})
            if observed is not None:
                observed.add(members, seen[members], running[members])
            actions = self.act(self._checked(forward(seen[members]), (len(members), n_episodes)))
            own, episodes = np.nonzero(running[members])
            rows = members[own] * n_episodes + episodes
            self._envs.step(playing, rows, actions[own, episodes])
            total[rows] += playing.rewards[rows] - survival_bonus
        return total.reshape(seeds.shape)

    def _ended_broken(self, playing: Playing) -> NDArray[np.bool_]:
        """Ends the episodes whose observations are not finite, and tells which these are, [episodes]."""
        finite = np.isfinite(playing.observations)
        if finite.all():
            return np.zeros(len(finite), dtype=np.bool_)
        broken = ~finite.reshape(len(finite), -1).all(axis=1)
        ended = broken & playing.running
        if ended.any():
            self._warn_once(playing.observations[np.argmax(ended)])
        playing.observations[broken] = 0.0  # policies are also given what members who have left saw last
        playing.running[ended] = False
        return ended

    def _warn_once(self, observation: Float32Array) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_of(observation, self._made_at)

    def n_in(self, interactions: int) -> int:
        """Number of episodes that have so many interactions if each is as long as it may be."""
        spec = self._envs.first.spec
        longest = min(spec.max_episode_steps or self._max_steps, self._max_steps) if spec else self._max_steps
        return math.ceil(interactions / longest)

    def player(self, forward: Forward) -> Callable[[Any], Any]:
        """A function from an observation to the action of the only member."""

        def action(observation: Any) -> Any:  # noqa: ANN401
            return self._action(forward, self._envs.observe(observation))

        return action

    def _action(self, forward: Forward, observation: Float32Array) -> Any:  # noqa: ANN401
        """The action of the only member after this observation [*shape]."""
        return self.act(self._checked(forward(observation[np.newaxis, np.newaxis]), (1, 1)))[0, 0]

    def film(self, forward: Forward, *, seed: int) -> Film:
        """One episode of the only member, drawn by the environment.

        Raises:
            ValueError: the environment draws no frames.
        """
        envs = environments(self._make, is_drawn=True)
        env = envs.first
        if env.render_mode != "rgb_array":
            named = isinstance(self._make, str)
            remedy = "name one that does" if named else "make it with render_mode='rgb_array' while it is filmed"
            raise ValueError(f"env: expected one that draws frames, got {env.render_mode} as its render_mode; {remedy}")
        fps = float(env.metadata.get("render_fps", FRAMES_PER_S))
        return Film(fps, self._frames(envs, forward, seed))

    def _frames(self, envs: Copies | Vectors, forward: Forward, seed: int) -> Iterator[Picture]:
        playing, total = envs.begin([seed]), 0.0
        yield Picture(_drawn(envs), total)
        for _ in range(self._max_steps):
            envs.step(playing, np.arange(1), [self._action(forward, playing.observations[0])])
            total += float(playing.rewards[0])
            yield Picture(_drawn(envs), total)
            if not playing.running[0]:
                break
        envs.first.close()

    def measure(self) -> tuple[Float32Array, Float32Array]:
        """The mean and standard deviation of observations under random actions.

        An episode ends before an observation that is not finite.

        Raises:
            ValueError: the first observation is not finite.
        """
        self._envs.action_space.seed(0)
        measured, n_seen = list[Float32Array](), 0
        for episode in range(MOST_MEASURED):
            if episode >= FEWEST_MEASURED and n_seen >= MEASURED_OBSERVATIONS:
                break
            seen = list[Float32Array]()
            for observation in self._met_at_random(episode):
                if not episode and not seen:
                    check_first(observation)
                if not is_finite(observation):
                    self._warn_once(observation)
                    break
                seen.append(observation)
            if seen:
                measured.append(np.stack(seen))
                n_seen += len(seen)
        return moments_of(measured)

    def check(self) -> None:
        """Checks that policies can act on the first observation.

        Raises:
            ValueError: it is not finite.
        """
        check_first(self._envs.begin([0]).observations[0])

    def _met_at_random(self, seed: int) -> Iterator[Float32Array]:
        """Observations of an episode under random actions."""
        playing = self._envs.begin([seed])
        for _ in range(MEASURED_STEPS):
            yield playing.observations[0].copy()
            if not playing.running[0]:
                return
            self._envs.step(playing, np.arange(1), [self._envs.action_space.sample()])
        yield playing.observations[0].copy()

    def _checked(self, outputs: NDArray[Any], batch: tuple[int, int]) -> NDArray[Any]:
        """Checks that there is one output for each episode, of the size that actions need."""
        if outputs.shape[:2] == batch and self.n_outputs in (None, outputs.shape[2] if outputs.ndim == 3 else 0):
            return outputs
        wanted = "..." if self.n_outputs is None else self.n_outputs
        found = ", ".join(map(str, ("episodes", *outputs.shape[2:])))
        raise ValueError(
            f"policy: expected outputs [episodes, {wanted}] for actions of {self._envs.action_space}, got [{found}]; "
            f"an observation is {list(self.observation_shape)}"
        )


def _drawn(envs: Copies | Vectors) -> NDArray[np.uint8]:
    """The environment's picture of an episode that is played alone, [height, width, 3].

    Raises:
        ValueError: a package with which it draws is missing.
    """
    try:
        return np.asarray(envs.drawn(), dtype=np.uint8)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(f"env: expected all packages with which it draws, and one is missing: {error}") from error

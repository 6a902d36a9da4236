"""Episodes that are played side by side: each in a copy of the environment, or all in a vector environment."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import gymnasium
import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.answers import began, check_spaces, fitted, stepped
from fedlearn.tasks.environment.spaces import observer

MakeOne = Callable[[], Env[Any, Any]]
MakeVector = Callable[[int], VectorEnv[Any, Any, Any]]
MakeEnv = str | MakeOne | MakeVector

Actions = Sequence[Any] | NDArray[Any]
"""Actions of some episodes, [episodes, *shape]."""

CHECKED_SEEDS = (3, 5)
"""Seeds of two episodes that must not depend on which of them comes first."""


@final
class Playing:
    """What is known of episodes that are played, after the last action of each."""

    def __init__(self, observations: Float32Array) -> None:
        """The episodes begin with these observations [episodes, *shape]."""
        self.observations = observations
        self.rewards = np.zeros(len(observations))
        self.running = np.ones(len(observations), dtype=bool)


@final
class Copies:
    """An environment of which a copy is made for each episode that is played at the same time."""

    def __init__(self, make: str | MakeOne, *, is_drawn: bool = False) -> None:
        self._make, self._is_drawn = make, is_drawn
        self._envs = [self._made()]
        self.first = self._envs[0]
        if isinstance(cast(object, self.first), VectorEnv):
            raise ValueError(
                "env: expected a function of the number of episodes where it makes a vector environment, such as "
                "lambda n: gymnasium.make_vec(NAME, n, vectorization_mode='sync'), got one without a parameter"
            )
        check_spaces(self.first)
        self.action_space = self.first.action_space
        self._observe, self.observation_shape = observer(self.first.observation_space)

    def begin(self, seeds: Sequence[int]) -> Playing:
        """Begins an episode for each seed.

        Raises:
            ValueError: the environment does not give what gymnasium's do.
        """
        while len(self._envs) < len(seeds):
            self._envs.append(self._made())
        return Playing(np.stack([self.observe(began(env, seed)) for env, seed in zip(self._envs, seeds, strict=False)]))

    def observe(self, observation: Any) -> Float32Array:  # noqa: ANN401
        """The observation as an array [*shape].

        Raises:
            ValueError: it has another size than the space says.
        """
        return fitted(self._observe(observation), self.observation_shape, self.first.observation_space)

    def step(self, playing: Playing, rows: NDArray[np.intp], actions: Actions) -> None:
        """Takes these actions in the episodes `rows`, and notes in `playing` what follows.

        Raises:
            ValueError: the environment does not give what gymnasium's do.
        """
        for row, action in zip(rows.tolist(), actions, strict=True):
            observation, reward, is_over = stepped(self._envs[row], action)
            playing.observations[row] = self.observe(observation)
            playing.rewards[row] = reward
            playing.running[row] = not is_over

    def drawn(self) -> Any:  # noqa: ANN401
        """The environment's picture of an episode that is played alone."""
        return self.first.render()

    def _made(self) -> Env[Any, Any]:
        """A new environment.

        Raises:
            ValueError: gymnasium knows no such name, or lacks what it needs.
        """
        if not isinstance(self._make, str):
            return self._make()
        try:
            mode: dict[str, Any] = (
                {"render_mode": "rgb_array"} if self._is_drawn else {}
            )  # which some environments don't take
            return gymnasium.make(self._make, disable_env_checker=True, **mode)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"env: expected a name that gymnasium can make, got {self._make!r}: {error}") from error


@final
class Vectors:
    """Vector environments of one kind, for each power of two episodes one.

    Episodes that have ended, and those beyond the asked ones, take the action of the first that has not.
    """

    def __init__(self, make: MakeVector) -> None:
        self._make = make
        self._vectors: dict[int, VectorEnv[Any, Any, Any]] = {}
        self.first = self._vector(1)
        self.action_space = self.first.single_action_space
        self.observe, self.observation_shape = observer(self.first.single_observation_space)
        self._check_seeds()

    def begin(self, seeds: Sequence[int]) -> Playing:
        """Begins an episode for each seed.

        Raises:
            ValueError: the environment does not take a seed for each episode.
        """
        vector = self._vector(len(seeds))
        padded: Any = list(seeds) + [seeds[0]] * (vector.num_envs - len(seeds))  # declared as one number
        try:
            observations = vector.reset(seed=padded)[0]
        except (TypeError, ValueError, gymnasium.error.Error) as error:
            raise _no_seeds(str(error)) from error
        return Playing(self._observed(vector, observations)[: len(seeds)].copy())

    def step(self, playing: Playing, rows: NDArray[np.intp], actions: Actions) -> None:
        """Takes these actions in the episodes `rows`, and notes in `playing` what follows."""
        vector = self._vector(len(playing.running))
        all_actions = np.repeat(np.asarray(actions[:1]), vector.num_envs, axis=0)
        all_actions[rows] = actions
        observations, rewards, terminated, truncated, _ = vector.step(all_actions)
        playing.observations[rows] = self._observed(vector, observations)[rows]
        playing.rewards[rows] = np.asarray(rewards)[rows]
        playing.running[rows] = ~(np.asarray(terminated) | np.asarray(truncated))[rows]

    def drawn(self) -> Any:  # noqa: ANN401
        """The environment's picture of an episode that is played alone."""
        pictures = self.first.render()
        return None if pictures is None else pictures[0]

    def _vector(self, n_episodes: int) -> VectorEnv[Any, Any, Any]:
        """The smallest vector environment for so many episodes."""
        size = 1 << (n_episodes - 1).bit_length()
        if size not in self._vectors:
            made = self._make(size)
            if not isinstance(made, VectorEnv) or made.num_envs != size:
                raise ValueError(
                    f"env: expected a gymnasium.vector.VectorEnv of {size} episodes from a function of their number, "
                    f"got {made!r}"
                )
            self._vectors[size] = made
        return self._vectors[size]

    def _observed(self, vector: VectorEnv[Any, Any, Any], observations: Any) -> Float32Array:  # noqa: ANN401
        """The observations of all episodes, [episodes, *shape]."""
        space = vector.single_observation_space
        if isinstance(space, spaces.Box):
            return fitted(self.observe(observations), (vector.num_envs, *self.observation_shape), space)
        return np.stack([self.observe(observation) for observation in iterate(vector.observation_space, observations)])

    def _check_seeds(self) -> None:
        """Checks that an episode follows from its seed, wherever it is played.

        Raises:
            ValueError: it does not.
        """
        self.action_space.seed(0)
        actions = [self.action_space.sample()] * 2
        met = []
        for seeds in (CHECKED_SEEDS, CHECKED_SEEDS[::-1]):
            playing = self.begin(seeds)
            begun = playing.observations.copy()
            self.step(playing, np.arange(2), actions)
            met.append(np.stack([begun, playing.observations]))
        if not np.array_equal(met[0], met[1][:, ::-1], equal_nan=True):
            raise _no_seeds("an episode is another one where it is played beside others")


def environments(make: MakeEnv, *, is_drawn: bool = False) -> Copies | Vectors:
    """The environments that this name or function makes; a named one draws frames where `is_drawn`.

    Raises:
        ValueError: it makes none.
    """
    if not isinstance(make, str) and not callable(given := cast(object, make)):
        many = isinstance(given, VectorEnv)
        example = "lambda n: gymnasium.make_vec(NAME, n, vectorization_mode='sync')" if many else "lambda: MyEnv()"
        raise ValueError(
            f"env: expected a name that gymnasium has, or a function that makes an environment, such as {example}, "
            f"got {given!r}; so many are made as episodes are played side by side"
        )
    if not isinstance(make, str) and _takes_a_number(make):
        return Vectors(cast(MakeVector, make))
    return Copies(cast("str | MakeOne", make), is_drawn=is_drawn)


def _takes_a_number(make: Callable[..., object]) -> bool:
    """Whether this function has a parameter that must be given."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a class that is written in C
        return False
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _no_seeds(why: str) -> ValueError:
    return ValueError(
        "env: expected a vector environment that is reset with a list of seeds, one for each episode, and in which "
        f"episodes do not depend on one another (gymnasium.make_vec does so with vectorization_mode='sync'): {why}"
    )

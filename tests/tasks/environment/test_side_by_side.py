from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment import EnvironmentTask, environment
from fedlearn.tasks.environment.side_by_side import Copies, MakeEnv, Vectors, environments
from fedlearn.tasks.environment.spaces import Act
from fedlearn.tasks.task import flat_weights
from tests.tasks.environment.test_task import START, linear, losses_of

Made = Callable[[], gymnasium.Env[Any, Any]]
Arrays = Callable[[int], VectorEnv[Any, Any, Any]]


def chasing(env: MakeEnv, *, episodes: int = 3, action: Act | None = None) -> EnvironmentTask:
    return environment(env, linear, start=START, episodes=episodes, action=action)


def copies_of(make: Made) -> Arrays:
    return lambda n: SyncVectorEnv([make] * n)


def test_a_vector_environment_returns_what_copies_return(chase: Callable[..., Made], chase_in_arrays: Arrays) -> None:
    expected = losses_of(chasing(chase()), seeds=(5, 9, 11))
    np.testing.assert_array_equal(losses_of(chasing(copies_of(chase())), seeds=(5, 9, 11)), expected)
    np.testing.assert_allclose(losses_of(chasing(chase_in_arrays), seeds=(5, 9, 11)), expected, rtol=1e-5)
    assert len(set(expected.tolist())) > 6


def test_what_is_measured_and_drawn_is_that_of_copies(chase: Callable[..., Made], chase_in_arrays: Arrays) -> None:
    one, many = chasing(chase()), chasing(chase_in_arrays)
    for name, array in one.tensors.items():
        np.testing.assert_allclose(many.tensors[name], array, rtol=1e-5, err_msg=name)
    weights = flat_weights(many.tensors)
    film = many.film(weights)
    pictures = list(film.frames)
    assert film.fps == 5
    assert [int(picture.pixels.max()) for picture in pictures] == list(range(len(pictures)))
    assert len(pictures) > 5
    assert pictures[0].pixels.shape == (4, 4, 3)
    alone = chasing(chase_in_arrays, episodes=1)
    assert many.evaluate(weights, threads=1) == alone.evaluate(weights, threads=1)


def test_there_is_a_vector_environment_for_each_power_of_two(chase_in_arrays: Arrays) -> None:
    sizes: list[int] = []

    def made(n: int) -> VectorEnv[Any, Any, Any]:
        sizes.append(n)
        return chase_in_arrays(n)

    envs = environments(made)
    for n in (5, 8, 7, 9, 3):
        playing = envs.begin(list(range(n)))
        envs.step(playing, np.arange(n)[1:], [np.full(1, 0.25, np.float32)] * (n - 1))
        assert playing.observations.shape == (n, 2)
        assert playing.observations[:, 0].tolist() == [0.0] + [0.25] * (n - 1)
        assert playing.rewards[0] == 0.0 > playing.rewards[1:].max()
    assert sizes == [1, 2, 8, 16, 4]


def test_an_episode_that_has_ended_stays_as_it_was(chase_in_arrays: Arrays) -> None:
    envs = Vectors(chase_in_arrays)
    playing = envs.begin([1, 2])
    rows, actions = np.arange(2), np.ones((2, 1), np.float32)
    while playing.running.all():
        envs.step(playing, rows, actions)
    ended, going = int(np.argmin(playing.running)), int(np.argmax(playing.running))
    last, rewards = playing.observations.copy(), playing.rewards.copy()
    envs.step(playing, np.array([going]), actions[:1])
    np.testing.assert_array_equal(playing.observations[ended], last[ended])
    assert playing.rewards[ended] == rewards[ended]
    assert not playing.running[ended]
    assert playing.observations[going][0] == last[going][0] + 1.0


def test_observations_of_an_environment_that_writes_them_in_one_place_are_kept(chase_in_arrays: Any) -> None:  # noqa: ANN401
    class InPlace(chase_in_arrays):  # type: ignore[misc]
        def _seen(self) -> Any:  # noqa: ANN401
            self.seen = getattr(self, "seen", np.zeros((self.num_envs, 2), np.float32))
            self.seen[:] = super()._seen()
            return self.seen

    envs = Vectors(InPlace)
    playing = envs.begin([1, 2])
    envs.step(playing, np.array([1]), np.ones((1, 1), np.float32))
    envs.step(playing, np.array([1]), np.ones((1, 1), np.float32))
    assert playing.observations[:, 0].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("action_space", [spaces.Discrete(3), spaces.MultiBinary(1)])
def test_numbers_are_actions_of_vector_environments(
    chase: Callable[..., Made], action_space: spaces.Space[Any]
) -> None:
    make = chase(action_space)

    def policy(arrays: dict[str, Float32Array], observations: Float32Array) -> Float32Array:
        outputs = linear(arrays, observations)
        return (
            outputs
            if isinstance(action_space, spaces.MultiBinary)
            else outputs * np.array([1.0, 2.0, -1.0], np.float32)
        )

    one, many = (environment(env, policy, start=START) for env in (make, copies_of(make)))
    np.testing.assert_array_equal(losses_of(many), losses_of(one))


PLACE, COLOUR = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(3)


@pytest.mark.parametrize(
    ("parts", "observed"),
    [
        (spaces.Dict({"place": PLACE, "colour": COLOUR}), lambda seen: {"place": seen, "colour": 1}),
        (spaces.Tuple((COLOUR, PLACE)), lambda seen: (1, seen)),
        (spaces.Dict({"all": spaces.Tuple((COLOUR, PLACE))}), lambda seen: {"all": (1, seen)}),
    ],
)
def test_observations_of_several_parts_are_flattened(
    chase: Callable[..., Made], parts: spaces.Space[Any], observed: Callable[[Any], Any]
) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TransformObservation(chase()(), observed, parts)

    def policy(arrays: dict[str, Float32Array], observations: Float32Array) -> Float32Array:
        assert observations.shape[1] == 5
        return linear(arrays, observations[:, 3:])

    one, many = (environment(env, policy, start=START) for env in (make, copies_of(make)))
    expected = losses_of(one)
    np.testing.assert_array_equal(losses_of(many), expected)
    assert len(set(expected.tolist())) > 4


def test_observations_of_several_discrete_numbers_are_one_hot(chase: Callable[..., Made]) -> None:
    """What is seen is the target, and how far away it is, in whole steps."""
    seen_as = spaces.MultiDiscrete([8, 16])

    def make() -> gymnasium.Env[Any, Any]:
        def observed(seen: Any) -> Any:  # noqa: ANN401
            return np.array([round(seen[1]), np.clip(round(seen[1] - seen[0]), 0, 15)], dtype=np.int64)

        return gymnasium.wrappers.TransformObservation(chase()(), observed, seen_as)

    def policy(arrays: dict[str, Float32Array], observations: Float32Array) -> Float32Array:
        np.testing.assert_array_equal(observations[:, :8].sum(axis=1), 1.0)
        np.testing.assert_array_equal(observations[:, 8:].sum(axis=1), 1.0)
        return linear(arrays, observations @ np.arange(24, dtype=np.float32)[:, np.newaxis] * np.ones(2, np.float32))

    one, many = (environment(env, policy, start=START, normalize=False) for env in (make, copies_of(make)))
    expected = losses_of(one)
    np.testing.assert_array_equal(losses_of(many), expected)
    assert len(set(expected.tolist())) > 2


def test_a_vector_environment_with_one_seed_for_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"env: expected .* list of seeds, .* vectorization_mode='sync'\): Seed must"):
        environments(lambda n: gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point"))


def test_episodes_that_depend_on_one_another_are_refused(chase_in_arrays: Any) -> None:  # noqa: ANN401
    class Ordered(chase_in_arrays):  # type: ignore[misc]
        def reset(self, *, seed: Sequence[int], options: object = None) -> Any:  # noqa: ANN401
            return super().reset(seed=sorted(seed), options=options)

    class Windy(chase_in_arrays):  # type: ignore[misc]
        def step(self, actions: Any) -> Any:  # noqa: ANN401
            return super().step(actions + np.arange(self.num_envs)[:, np.newaxis])

    for env in (Ordered, Windy):
        with pytest.raises(ValueError, match="an episode is another one where it is played beside others"):
            environments(env)


def test_a_function_without_a_number_makes_one_environment(chase: Callable[..., Made], chase_in_arrays: Arrays) -> None:
    assert isinstance(environments(chase()), Copies)
    assert isinstance(environments(lambda _=3: chase()()), Copies)
    with pytest.raises(ValueError, match=r"env: expected a function of the number of episodes .* without a parameter"):
        environments(lambda: chase_in_arrays(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"such as lambda n: gymnasium.make_vec\(NAME, n, vectorization_mode='sync'\)"):
        environments(lambda: gymnasium.make_vec("CartPole-v1", num_envs=8))  # type: ignore[arg-type]


def test_environments_that_are_made_already_are_refused(chase: Callable[..., Made], chase_in_arrays: Arrays) -> None:
    for env, example in (
        (chase()(), r"lambda: MyEnv\(\)"),
        (chase_in_arrays(4), r"lambda n: gymnasium.make_vec\(NAME"),
    ):
        with pytest.raises(
            ValueError, match=f"a function that makes an environment, such as {example}.*, got .*; so many"
        ):
            environments(env)  # type: ignore[arg-type]


def test_gymnasiums_own_vectors_return_what_a_name_returns() -> None:
    def many(n: int) -> VectorEnv[Any, Any, Any]:
        return gymnasium.make_vec("CartPole-v1", n, vectorization_mode="sync")

    one, vectors = (environment(env, episodes=2) for env in ("CartPole-v1", many))
    expected = losses_of(one)
    np.testing.assert_array_equal(losses_of(vectors), expected)
    assert len(set(expected.tolist())) > 2


def test_a_function_of_a_number_makes_so_many(chase: Callable[..., Made], chase_in_arrays: Arrays) -> None:
    for env in (lambda _: chase_in_arrays(3), lambda _: chase()()):
        with pytest.raises(ValueError, match=r"env: expected a gymnasium.vector.VectorEnv of 1 episodes from a func"):
            environments(env)  # type: ignore[arg-type]


def test_members_are_compared_without_the_survival_bonus(chase: Callable[..., Made]) -> None:
    plain, paid = (environment(chase(), linear, start=START, survival_bonus=bonus) for bonus in (0.0, 0.5))
    lengths = (losses_of(paid) - losses_of(plain)) / 0.5
    assert 1 <= lengths.min() <= lengths.max() <= 12
    np.testing.assert_allclose(lengths, lengths.round(), atol=1e-4)
    weights = flat_weights(plain.tensors)
    assert paid.evaluate(weights, threads=1) == plain.evaluate(weights, threads=1)


def test_a_registered_environment_needs_no_render_mode(chase: Callable[..., Made]) -> None:
    def made(**settings: Any) -> gymnasium.Env[Any, Any]:  # noqa: ANN401
        assert not settings
        return chase()()

    gymnasium.register("Plain-v0", made)
    try:
        assert environments("Plain-v0").observation_shape == (2,)
    finally:
        del gymnasium.registry["Plain-v0"]

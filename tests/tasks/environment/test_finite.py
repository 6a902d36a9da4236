"""Observations that are not finite: at the beginning, later, and in what is measured."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import fedlearn
from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.moments import width
from fedlearn.tasks.environment import EnvironmentTask, environment, episodes
from fedlearn.tasks.environment.side_by_side import MakeEnv
from fedlearn.tasks.environment.task import FIRST_HELD_OUT_SEED, N_HELD_OUT, Normalize
from fedlearn.tasks.task import Batch, flat_weights
from tests.tasks.environment.test_task import GROUP_SIZE, START, Made, linear, noise_of

SEEDS = (100, 104)
"""Seeds of two groups; episodes are measured with smaller ones."""

Broken = Callable[[int, int], bool]
"""Whether the observation of an episode of this seed after so many steps is broken."""

WARNING = r"env: expected finite observations, got {} at \[1\]; members that meet such ones do not count; let the env"


class Breaking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of which the second number of some observations is replaced by `value`."""

    def __init__(self, env: gymnasium.Env[Any, Any], is_broken: Broken, value: float) -> None:
        super().__init__(env)
        self.is_broken, self.value = is_broken, value

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:  # noqa: ANN401, ARG002
        assert seed is not None
        self.begun_with, self.n_taken = seed, 0
        observation, info = self.env.reset(seed=seed)
        return self._seen(observation), info

    def step(self, action: Any) -> Any:  # noqa: ANN401
        self.n_taken += 1
        observation, *others = self.env.step(action)
        return self._seen(observation), *others

    def _seen(self, observation: Any) -> Any:  # noqa: ANN401
        return np.where([False, self.is_broken(self.begun_with, self.n_taken)], self.value, observation)


def task_of(env: MakeEnv, *, n_episodes: int = 1, normalize: Normalize = True) -> EnvironmentTask:
    return environment(env, linear, start=START, episodes=n_episodes, normalize=normalize)


def breaking(make: Made, is_broken: Broken, value: float = math.nan) -> Made:
    return lambda: Breaking(make(), is_broken, value)


def observed(task: EnvironmentTask) -> tuple[list[float], Any]:
    """The losses and the moments [2, 5] of two groups, of `SEEDS`."""
    members = task.members(flat_weights(task.tensors), noise_of(task), n_groups=2)
    losses, moments = task.observe(members, Batch(rows={}, seeds=SEEDS))
    return losses.tolist(), moments.reshape(2, -1)


@pytest.mark.parametrize("normalize", [True, "once", False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("is_vector", [False, True])
def test_a_first_observation_that_is_not_finite_is_refused(
    chase: Callable[..., Made], normalize: Normalize, value: float, *, is_vector: bool
) -> None:
    make = breaking(chase(), lambda *_: True, value)
    env: MakeEnv = (lambda n: SyncVectorEnv([make] * n)) if is_vector else make
    with pytest.raises(
        ValueError, match=rf"env: expected finite observations, got {value} at \[1\] of the first one; let the env"
    ):
        _ = task_of(env, normalize=normalize).tensors


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("is_vector", [False, True])
@pytest.mark.parametrize("n_episodes", [1, 2])
def test_a_member_that_meets_such_a_one_later_does_not_count(
    chase: Callable[..., Made], value: float, n_episodes: int, *, is_vector: bool
) -> None:
    make = breaking(chase(), lambda seed, n_taken: (seed, n_taken) == (SEEDS[0], 2), value)
    task = task_of((lambda n: SyncVectorEnv([make] * n)) if is_vector else make, n_episodes=n_episodes)
    with pytest.warns(RuntimeWarning, match=WARNING.format(value)):
        losses, moments = observed(task)
    whole, all_moments = observed(task_of(chase(), n_episodes=n_episodes))
    assert np.isnan(losses[:GROUP_SIZE]).all()
    assert losses[GROUP_SIZE:] == whole[GROUP_SIZE:]
    np.testing.assert_array_equal(moments[1], all_moments[1])
    assert 2 * GROUP_SIZE <= moments[0, 0] < all_moments[0, 0]
    if n_episodes == 1:
        assert moments[0, 0] == 2 * GROUP_SIZE  # those before it


def test_members_who_meet_one_at_once_have_observed_nothing(chase: Callable[..., Made]) -> None:
    with pytest.warns(RuntimeWarning, match=WARNING.format("nan")):
        losses, moments = observed(task_of(breaking(chase(), lambda seed, _: seed in SEEDS)))
    assert np.isnan(losses).all()
    np.testing.assert_array_equal(moments, np.zeros((2, width(2))))


@pytest.mark.parametrize("most", [2, 100])
def test_what_the_last_action_leads_to_is_not_met(chase: Callable[..., Made], most: int) -> None:
    def short() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(chase()(), 2)

    plain, broken = (
        environment(make, linear, start=START, max_steps=most)
        for make in (short, breaking(short, lambda seed, n_taken: seed in SEEDS and n_taken == 2))
    )
    assert observed(broken)[0] == observed(plain)[0]


def test_a_policy_is_given_finite_numbers_alone(chase: Callable[..., Made]) -> None:
    def policy(arrays: dict[str, Float32Array], observations: Float32Array) -> Float32Array:
        assert np.isfinite(observations).all()
        return linear(arrays, observations)

    make = breaking(chase(), lambda seed, n_taken: (seed, n_taken) == (SEEDS[0], 2))
    task = environment(make, policy, start=START, episodes=2, normalize=False)
    with pytest.warns(RuntimeWarning, match=WARNING.format("nan")):
        observed(task)


def test_a_task_warns_once_at_the_line_that_made_it(chase: Callable[..., Made]) -> None:
    task = task_of(breaking(chase(), lambda seed, _: seed in SEEDS))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        first, second = observed(task)[0], observed(task)[0]
    assert [warning.filename for warning in warned] == [__file__]
    np.testing.assert_array_equal(first, second)


def test_what_is_measured_ends_before_such_a_one(chase: Callable[..., Made], monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(breaking(chase(), lambda seed, n_taken: n_taken == (0 if seed else 5)))
    with pytest.warns(RuntimeWarning, match=WARNING.format("nan")):
        tensors = task.tensors
    monkeypatch.setattr(episodes, "MOST_MEASURED", 1)
    cut = task_of(lambda: gymnasium.wrappers.TimeLimit(chase()(), 4)).tensors
    for name in ("observations.mean", "observations.deviation"):
        assert np.isfinite(tensors[name]).all()
        np.testing.assert_array_equal(tensors[name], cut[name])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_in_which_few_are_broken_learns_and_keeps_its_statistics(
    chase: Callable[..., Made], tmp_path: Path
) -> None:
    task = task_of(breaking(chase(), lambda seed, n_taken: seed % 8 == 7 and n_taken == 3))
    trained = fedlearn.train(task, steps=30, runs=tmp_path, threads=1, progress=False)
    assert all(np.isfinite(array).all() for array in trained.weights.values())
    losses = [loss for loss in trained.losses if loss is not None]
    assert losses[-1] < losses[0]


def test_looks_at_the_policy_leave_out_episodes_that_are_broken(chase: Callable[..., Made]) -> None:
    seeds = FIRST_HELD_OUT_SEED + np.arange(N_HELD_OUT)
    plain = task_of(chase(), normalize=False)
    weights = flat_weights(plain.tensors)
    for n_broken in (1, N_HELD_OUT - 1, N_HELD_OUT):
        broken = set(seeds[:n_broken].tolist())
        task = task_of(breaking(chase(), lambda seed, _, broken=broken: seed in broken), normalize=False)  # type: ignore[misc]
        with pytest.warns(RuntimeWarning, match=WARNING.format("nan")):
            found = task.evaluate(weights, threads=1)["return"]
        assert math.isnan(found) == (n_broken == N_HELD_OUT)

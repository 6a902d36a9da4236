"""What members observe, counted as they play and counted by hand."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import fedlearn
from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.moments import MOST_DEVIATIONS, UNIT, counted, width
from fedlearn.tasks.environment import EnvironmentTask, environment
from fedlearn.tasks.environment import episodes as episodes_module
from fedlearn.tasks.environment import task as task_module
from fedlearn.tasks.environment.normalization import LEAST_DEVIATION, Normalization, Observed, moments_of
from fedlearn.tasks.environment.task import Normalize
from fedlearn.tasks.task import Batch, flat_weights
from tests.tasks.environment.test_task import GROUP_SIZE, START, Made, linear, noise_of

SEEDS = (5, 9)


def observations_of(make: Made, seed: int, arrays: Mapping[str, Float32Array]) -> Float32Array:
    """All on which one member acts in one episode, played by itself."""
    env = make()
    seen, is_over = [env.reset(seed=seed)[0]], False
    normalization = Normalization(arrays["observations.mean"], arrays["observations.deviation"])
    while not is_over:
        action = np.clip(linear(arrays, normalization.seen(seen[-1][np.newaxis]))[0], -1.0, 1.0)
        observation, _, terminated, truncated, _ = env.step(action.astype(np.float32))
        seen.append(observation)
        is_over = terminated or truncated
    return np.stack(seen[:-1])


@pytest.mark.parametrize("episodes", [1, 2])
@pytest.mark.parametrize("at_once", [512, 6])
def test_moments_are_those_of_all_on_which_the_members_of_a_group_acted(
    chase: Callable[..., Made], episodes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "MAX_ENVIRONMENTS", at_once)
    task = environment(chase(), linear, start=START, episodes=episodes)
    weights = flat_weights(task.tensors)
    task.layout.split(weights)["observations.mean"][:] += [0.5, -0.25]  # as renewed
    members = task.members(weights, noise_of(task), n_groups=2)
    losses, moments = task.observe(members, Batch(rows={}, seeds=SEEDS))
    np.testing.assert_array_equal(losses, task.losses(members, Batch(rows={}, seeds=SEEDS)))
    expected = np.zeros((2, width(2)), dtype=np.int64)
    for number, arrays in enumerate(members.each()):
        group = number // GROUP_SIZE
        for episode in range(episodes):
            seen = observations_of(chase(), SEEDS[group] + episode, arrays)
            units = counted((seen - arrays["observations.mean"]) / arrays["observations.deviation"])
            expected[group] += np.concatenate([[len(units)], units.sum(axis=0), (units**2).sum(axis=0)])
    assert moments.dtype == np.int64
    assert moments.reshape(2, -1)[:, 0].tolist() == expected[:, 0].tolist()
    np.testing.assert_allclose(moments.reshape(2, -1), expected, rtol=1e-3, atol=5.0)  # actions differ in last digits


def floats(values: object) -> Float32Array:
    return np.array(values, dtype=np.float32)


def test_episodes_that_are_over_and_members_that_have_left_are_not_counted() -> None:
    observed = Observed(Normalization(floats([1.0, 0.0]), floats([2.0, 1.0])), 3)
    seen = floats([[[3.0, 0.5], [9.0, 9.0]], [[1.0, 1e9], [-1.0, -2.0]]])
    observed.add(np.array([0, 2]), seen, np.array([[True, False], [True, True]]))
    observed.add(np.array([2]), floats([[[3.0, 0.0], [0.0, 0.0]]]), np.array([[True, False]]))
    most = MOST_DEVIATIONS * UNIT
    assert observed.moments().tolist() == [
        [1, UNIT, UNIT // 2, UNIT**2, (UNIT // 2) ** 2],
        [0, 0, 0, 0, 0],
        [3, UNIT - UNIT, most - 2 * UNIT, 2 * UNIT**2, most**2 + 4 * UNIT**2],
    ]


def episodes_about(means: object, *, n: int = 8) -> list[Float32Array]:
    """Episodes of different lengths whose own means are spread by one about these, [steps, numbers] each."""
    random = np.random.default_rng(3)
    lengths = 10 + 5 * (np.arange(n) % 2)
    spreads = np.where(np.arange(n) % 4 < 2, 1.0, -1.0)  # as many to either side, of either length
    return [
        floats(floats(means) + spread + 0.1 * random.standard_normal((length, 2)))
        for spread, length in zip(spreads, lengths, strict=True)
    ]


def test_a_mean_that_may_as_well_be_zero_is_zero_and_one_beyond_doubt_stays() -> None:
    measured = episodes_about([0.3, 10.0])
    mean, deviation = moments_of(measured)
    whole = np.concatenate(measured)
    assert mean[0] == 0.0
    assert mean[1] == np.float32(whole[:, 1].mean(dtype=np.float64))
    np.testing.assert_allclose(deviation, np.sqrt(np.square(whole - mean).mean(axis=0)), rtol=1e-5)


def test_the_more_episodes_there_are_the_sooner_a_mean_is_believed() -> None:
    found = [moments_of(episodes_about([0.5, 0.0], n=n))[0][0] for n in (8, 32)]
    assert found[0] == 0.0
    assert found[1] == pytest.approx(0.5, abs=0.2)


def test_one_episode_tells_its_mean_and_what_hardly_moves_is_only_centred() -> None:
    seen = floats([[1.0, 5.0], [3.0, 5.0 + LEAST_DEVIATION]])
    mean, deviation = moments_of([seen])
    np.testing.assert_allclose(mean, [2.0, 5.0 + LEAST_DEVIATION / 2], rtol=1e-6)
    assert deviation.tolist() == [1.0, 1.0]
    assert moments_of([2.0 * seen])[1].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("enough", "n_episodes"), [(1, 8), (150, 12), (10**6, 64)])
def test_so_many_episodes_are_measured_that_there_are_enough_observations(
    chase: Callable[..., Made], enough: int, n_episodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes_module, "MEASURED_OBSERVATIONS", enough)
    given = list[list[int]]()

    def counting(measured: list[Float32Array]) -> tuple[Float32Array, Float32Array]:
        given.append([len(episode) for episode in measured])
        return moments_of(measured)

    monkeypatch.setattr(episodes_module, "moments_of", counting)
    assert environment(chase(), linear, start=START).tensors["observations.mean"].shape == (2,)
    (lengths,) = given
    assert len(lengths) == n_episodes
    assert sum(lengths[:-1]) < enough or n_episodes == 8


def statistics_of(make: Made, normalize: Normalize) -> EnvironmentTask:
    return environment(make, linear, start=START, normalize=normalize)


@pytest.mark.parametrize(
    ("normalize", "is_kept", "is_renewed"),
    [(True, True, True), ("running", True, True), ("once", True, False), (False, False, False)],
)
def test_observations_are_normalised_as_asked(
    chase: Callable[..., Made], normalize: Normalize, *, is_kept: bool, is_renewed: bool
) -> None:
    task = statistics_of(chase(), normalize)
    assert ("observations.mean" in task.tensors) == ("observations.deviation" in task.tensors) == is_kept
    assert task.layout.n_observed == (2 if is_renewed else 0)
    members = task.members(flat_weights(task.tensors), noise_of(task), n_groups=2)
    assert task.observe(members, Batch(rows={}, seeds=SEEDS))[1].size == (2 * width(2) if is_renewed else 0)


def test_images_are_normalised_once_unless_asked_otherwise(
    chase: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "MOST_INPUTS", 2)
    assert statistics_of(chase(), True).layout.n_observed == 2
    monkeypatch.setattr(task_module, "MOST_INPUTS", 1)
    assert statistics_of(chase(spaces.Box(-1.0, 1.0, (1,))), True).layout.n_observed == 0
    assert statistics_of(chase(), "running").layout.n_observed == 2


def test_another_way_to_normalise_is_named(chase: Callable[..., Made]) -> None:
    with pytest.raises(ValueError, match="normalize: expected True, False, 'running' or 'once', got 'always'"):
        statistics_of(chase(), "always")  # type: ignore[arg-type]


def test_what_is_saved_is_normalised_as_it_was_last(chase: Callable[..., Made], tmp_path: Path) -> None:
    task = environment(chase(), linear, start=START)
    trained = fedlearn.train(task, steps=6, runs=tmp_path, threads=1, progress=False)
    loaded = fedlearn.load(trained.folder, task=task, progress=False)
    for name in ("observations.mean", "observations.deviation"):
        np.testing.assert_array_equal(loaded.weights[name], trained.weights[name])
        assert (trained.weights[name] != task.tensors[name]).all()
    weights = flat_weights(dict(trained.weights))
    assert task.evaluate(weights, threads=1) == trained.figures

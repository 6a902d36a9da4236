import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.environment import EnvironmentTask, environment
from fedlearn.tasks.environment import task as task_module
from fedlearn.tasks.environment.episodes import MOST_MEASURED
from fedlearn.tasks.environment.normalization import moments_of
from fedlearn.tasks.task import Batch, flat_weights

Made = Callable[[], gymnasium.Env[Any, Any]]
GROUP_SIZE = 4
START = {"weight": [[0.02, 0.1]], "bias": [0.2]}


def linear(arrays: Mapping[str, Float32Array], observations: Float32Array) -> Float32Array:
    return np.asarray(observations @ arrays["weight"].T + arrays["bias"])


def noise_of(task: EnvironmentTask, n_groups: int = 2) -> list[TensorNoise]:
    trials = Trials(3, Perturbation(sigma=0.05, rank=1), GROUP_SIZE, first_member=0, n_members=n_groups * GROUP_SIZE)
    return member_noise(task.layout, trials, seed=1)


def losses_of(task: EnvironmentTask, seeds: Sequence[int] = (5, 9)) -> Float32Array:
    members = task.members(flat_weights(task.tensors), noise_of(task, len(seeds)), n_groups=len(seeds))
    return task.losses(members, Batch(rows={}, seeds=tuple(seeds)))


def played(make: Made, seed: int, arrays: dict[str, Float32Array]) -> float:
    """What one member returns in one episode, played by itself."""
    env = make()
    observation, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        action = np.clip(linear(arrays, observation[np.newaxis].astype(np.float32))[0], -1.0, 1.0)
        observation, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
        total, is_over = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize("episodes", [1, 3])
def test_lockstep_returns_what_members_return_one_by_one(chase: Callable[..., Made], episodes: int) -> None:
    task = environment(chase(), linear, start=START, normalize=False, episodes=episodes)
    members = list(task.members(flat_weights(task.tensors), noise_of(task), n_groups=2).each())
    expected = [
        -np.mean([played(chase(), (5, 9)[i // GROUP_SIZE] + e, dict(arrays)) for e in range(episodes)])
        for i, arrays in enumerate(members)
    ]
    losses = losses_of(task)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses.dtype == np.float32
    assert len(set(losses.tolist())) > GROUP_SIZE
    np.testing.assert_array_equal(losses_of(task), losses)


def test_more_episodes_than_environments_are_played_in_turns(
    chase: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_made = 0

    def counted() -> gymnasium.Env[Any, Any]:
        nonlocal n_made
        n_made += 1
        return chase()()

    expected = losses_of(environment(chase(), linear, start=START, episodes=2))
    monkeypatch.setattr(task_module, "MAX_ENVIRONMENTS", 7)
    np.testing.assert_array_equal(losses_of(environment(counted, linear, start=START, episodes=2)), expected)
    assert n_made == 6


def test_a_module_returns_what_the_same_function_returns(chase: Callable[..., Made]) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1)
    module.load_state_dict({name: torch.tensor(value) for name, value in START.items()})
    task, twin = environment(chase(), module), environment(chase(), linear, start=START)
    assert list(task.tensors) == [
        "weight",
        "bias",
        *(f"observations.{name}" for name in ("mean", "deviation")),
    ]
    np.testing.assert_allclose(losses_of(task), losses_of(twin), rtol=1e-5)


def test_a_module_is_made_once_and_equal_everywhere(chase: Callable[..., Made]) -> None:
    torch = pytest.importorskip("torch")
    calls = 0

    def make() -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        return torch.nn.Linear(2, 1)

    task, again = environment(chase(), make), environment(chase(), lambda: torch.nn.Linear(2, 1))
    assert calls == 0
    before = torch.random.get_rng_state()
    np.testing.assert_array_equal(flat_weights(task.tensors), flat_weights(again.tensors))
    assert torch.equal(torch.random.get_rng_state(), before)
    losses_of(task)
    assert calls == 1


@pytest.mark.parametrize("has_module", [False, True])
def test_each_seed_draws_a_policy_of_its_own(chase: Callable[..., Made], has_module: bool) -> None:
    torch = pytest.importorskip("torch")

    def drawn(*seeds: int) -> Float32Array:
        task = environment(chase(), (lambda: torch.nn.Linear(2, 1)) if has_module else None)
        found = [flat_weights(task.tensors)]
        for seed in seeds:
            task.draw_weights(seed)
            found.append(flat_weights(task.tensors))
        return found[-1]

    assert (drawn(3) != drawn()).any()
    np.testing.assert_array_equal(drawn(5, 3), drawn(3))
    np.testing.assert_array_equal(drawn(5, 0), drawn())


def test_what_of_a_module_is_not_learned_is_frozen(chase: Callable[..., Made]) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    module[0].bias.requires_grad_(False)
    task = environment(chase(), module, normalize=False)
    assert "0.bias" not in task.tensors
    assert set(task.frozen) == {"0.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert not module.training
    assert np.isfinite(losses_of(task)).all()


def test_members_of_a_group_meet_the_same_episodes(chase: Callable[..., Made]) -> None:
    met: list[int | None] = []

    class Noted(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
            met.append(seed)
            return self.env.reset(seed=seed, options=options)

    task = environment(lambda: Noted(chase()()), linear, start=START, episodes=2, normalize=False)
    assert task.tensors
    assert met == [0]  # whose first observation is looked at
    met.clear()
    losses_of(task, seeds=(5, 2**32 - 1))
    last = (2**32 - 1) % task_module.FIRST_HELD_OUT_SEED
    assert met == [5, 6] * GROUP_SIZE + [last, last + 1] * GROUP_SIZE


def test_evaluation_is_the_mean_return_on_held_out_episodes(chase: Callable[..., Made]) -> None:
    task = environment(chase(), linear, start=START, normalize=False)
    arrays = {name: np.array(value, dtype=np.float32) for name, value in START.items()}
    first = task_module.FIRST_HELD_OUT_SEED
    expected = np.mean([played(chase(), seed, arrays) for seed in range(first, first + 10)])
    found = task.evaluate(flat_weights(task.tensors), threads=1)
    assert found == {"return": pytest.approx(expected, rel=1e-5)}
    assert first + 10 < 2**31


def test_observations_are_normalized_by_what_travels_with_the_weights(chase: Callable[..., Made]) -> None:
    task = environment(chase(), linear, start=START)
    weights = flat_weights(task.tensors)
    parts = task.layout.split(weights)
    parts["observations.mean"][:], parts["observations.deviation"][:] = [1.0, 2.0], [2.0, 0.5]
    act = task.player(weights)
    # [0.02, 0.1] times the normalized observation, and the bias.
    assert act(np.array([3.0, 2.5])) == pytest.approx(0.02 * 1.0 + 0.1 * 1.0 + 0.2)
    assert act(np.array([1e9, 2.0])) == pytest.approx(0.02 * 5.0 + 0.2)
    assert act(np.array([-1e9, 2.0])) == pytest.approx(-0.02 * 5.0 + 0.2)


def test_normalization_is_neither_perturbed_nor_learned(chase: Callable[..., Made]) -> None:
    task = environment(chase(), linear, start=START, scales={"weight": 2.0})
    scales = {spec.name: spec.scale for spec in task.layout.tensors}
    measured = ["observations.mean", "observations.deviation"]
    assert scales == {"weight": 2.0, "bias": 1.0, **dict.fromkeys(measured, 0.0)}
    for arrays in task.members(flat_weights(task.tensors), noise_of(task), n_groups=2).each():
        for name in measured:
            np.testing.assert_array_equal(arrays[name], task.tensors[name])


def test_what_is_measured_is_equal_everywhere(chase: Callable[..., Made]) -> None:
    one, two = (environment(chase(), linear, start=START) for _ in range(2))
    for name in ("observations.mean", "observations.deviation"):
        np.testing.assert_array_equal(one.tensors[name], two.tensors[name])


def test_every_observation_under_random_actions_is_measured(chase: Callable[..., Made]) -> None:
    env, measured = chase()(), []
    env.action_space.seed(0)
    for seed in range(MOST_MEASURED):
        seen, is_over = [env.reset(seed=seed)[0]], False
        while not is_over:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append(observation)
            is_over = terminated or truncated
        measured.append(np.stack(seen))
    found = environment(chase(), linear, start=START, normalize="once").tensors
    mean, deviation = moments_of(measured)
    np.testing.assert_array_equal(found["observations.mean"], mean)
    np.testing.assert_array_equal(found["observations.deviation"], deviation)


def test_losses_are_shown_as_returns(chase: Callable[..., Made]) -> None:
    task = environment(chase(), linear, start=START, episodes=3)
    assert (task.kind, task.unit, task.work_per_member) == ("environment", "episodes", 3)
    assert task.show(-12.5) == ("return", 12.5)
    assert str(task.show(0.0)[1]) == "0.0"


def test_an_episode_without_an_end_is_cut(chase: Callable[..., Made]) -> None:
    short, long = (environment(chase(), linear, start=START, normalize=False, max_steps=n) for n in (1, 12))
    assert (losses_of(short) < losses_of(long)).all()


def test_the_users_action_replaces_the_usual_one(chase: Callable[..., Made]) -> None:
    task = environment(
        chase(), linear, start=START, normalize=False, action=lambda outputs: np.full_like(outputs, 0.5, np.float32)
    )
    assert len(set(losses_of(task).tolist())) == 2


def test_settings_of_the_user_outrank_those_of_the_kind(chase: Callable[..., Made]) -> None:
    task = environment(chase(), linear, start=START, settings={"sigma": 0.125, "steps": 9})
    assert (task.settings["sigma"], task.settings["steps"]) == (0.125, 9)
    assert task.settings["optimizer"] == "clipup"


@pytest.mark.parametrize(
    ("longest", "episodes", "members"), [(None, 1, 8), (1000, 1, 8), (200, 1, 16), (200, 2, 8), (2, 1, 64)]
)
def test_a_step_has_so_many_interactions(
    chase: Callable[..., Made], longest: int | None, episodes: int, members: int
) -> None:
    start = {"weight": np.zeros((1, 90)), "bias": np.zeros(10)}
    task = environment(chase(), linear, start=start, episodes=episodes, max_steps=longest or 100_000)
    assert task.settings["sigma"] == pytest.approx(13.0 / 10.0)
    assert task.settings["population_limit"] == members


def test_noise_is_small_for_many_continuous_actions(chase: Callable[..., Made]) -> None:
    few, many = (environment(chase(spaces.Box(-1.0, 1.0, (n,)))).settings for n in (2, 3))
    assert float(few["sigma"]) > 10 * float(many["sigma"])
    of_its_own = environment(chase(spaces.Box(-1.0, 1.0, (3,))), linear, start=START, action=lambda outputs: outputs)
    assert float(of_its_own.settings["sigma"]) > 10 * float(many["sigma"])


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)])
def test_noise_of_choices_is_small_where_the_policy_does_nothing_at_first(
    chase: Callable[..., Made], space: spaces.Space[Any]
) -> None:
    def choosing(arrays: dict[str, Float32Array], seen: Float32Array) -> Float32Array:
        return np.asarray(seen @ arrays["weight"].T)

    def length(task: EnvironmentTask) -> float:
        n_weights = sum(array.size for name, array in task.tensors.items() if not name.startswith("observations"))
        return float(task.settings["sigma"]) * math.sqrt(n_weights)

    own = environment(chase(space), choosing, start={"weight": np.zeros((5, 2))})
    assert length(environment(chase(space))) == pytest.approx(0.3)
    assert length(own) == pytest.approx(3.0)
    of_its_own = environment(chase(space), choosing, start={"weight": np.zeros((5, 2))}, action=lambda outputs: outputs)
    assert length(of_its_own) == pytest.approx(13.0)


def test_without_a_policy_a_small_network_learns(chase: Callable[..., Made]) -> None:
    def same(arrays: dict[str, Float32Array], seen: Float32Array) -> Float32Array:
        hidden = np.tanh(seen @ arrays["hidden.weight"].T + arrays["hidden.bias"])
        return np.asarray(seen @ arrays["linear.weight"].T + hidden @ arrays["output.weight"].T)

    task = environment(chase())
    start = {name: array for name, array in task.tensors.items() if not name.startswith("observations")}
    assert {name: array.shape for name, array in start.items()} == {
        "linear.weight": (1, 2),
        "hidden.weight": (16, 2),
        "hidden.bias": (16,),
        "output.weight": (1, 16),
    }
    assert not task.frozen
    losses = losses_of(task)
    assert len(set(losses.tolist())) > GROUP_SIZE
    np.testing.assert_allclose(losses, losses_of(environment(chase(), same, start=start)), rtol=1e-5)


def test_arrays_without_a_policy_ask_for_one(chase: Callable[..., Made]) -> None:
    with pytest.raises(
        ValueError, match="policy: expected a function of the arrays of `start` and of observations, got none"
    ):
        environment(chase(), start=START)


def test_a_registered_environment_says_how_long_its_episodes_may_be() -> None:
    tasks = [environment("CartPole-v1", linear, start=START, max_steps=steps) for steps in (100_000, 100)]
    assert [task.settings["population_limit"] for task in tasks] == [8, 24]


@pytest.mark.parametrize("outputs", [(3,), (), (1, 1)])
def test_outputs_that_do_not_fit_the_actions_are_named(chase: Callable[..., Made], outputs: tuple[int, ...]) -> None:
    def policy(_: object, observations: Float32Array) -> Float32Array:
        return np.zeros((len(observations), *outputs), dtype=np.float32)

    task = environment(chase(spaces.Box(-1.0, 1.0, (2,))), policy, start=START)
    with pytest.raises(ValueError, match=r"policy: expected outputs \[episodes, 2\] for actions of Box.*, got \[epis"):
        losses_of(task)


def test_actions_without_a_usual_way_ask_for_one(chase: Callable[..., Made]) -> None:
    with pytest.raises(ValueError, match="action: expected a function from outputs to actions of Tuple"):
        losses_of(environment(chase(spaces.Tuple((spaces.Discrete(3),))), linear, start=START))


def test_an_unknown_environment_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"env: expected a name that gymnasium can make, got 'CartPool-v1': .*CartPole"
    ):
        losses_of(environment("CartPool-v1", linear, start=START))


def test_a_missing_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "fedlearn.tasks.environment.episodes", raising=False)
    monkeypatch.delitem(sys.modules, "fedlearn.tasks.environment.spaces", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"gymnasium, which is not installed; pip install 'fedlearn\[gym\]'"):
        _ = environment("CartPole-v1", linear, start=START).tensors


def test_a_policy_that_is_no_module_is_named(chase: Callable[..., Made]) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="policy: expected a torch module or a function that makes one, got 3"):
        _ = environment(chase(), lambda: 3).tensors


@pytest.mark.parametrize("name", ["episodes", "max_steps"])
def test_a_member_plays_at_least_once(chase: Callable[..., Made], name: str) -> None:
    given: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name}: expected 1 or more, got 0"):
        environment(chase(), linear, start=START, **given)


def test_the_loss_that_is_wanted_is_that_of_gymnasiums_threshold() -> None:
    assert environment("MountainCarContinuous-v0").settings["target_loss"] == -90.0
    for unknown in (environment("Pendulum-v1"), environment("MountainCarContinuous-v0", survival_bonus=1.0)):
        assert "restarts" not in unknown.settings

"""A policy for an environment: the members of a group run the same episodes, and their loss is minus the return."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, Statistic
from fedlearn.es.sums.moments import NO_MOMENTS, Int64Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.environment.default_policy import MOST_INPUTS, DefaultPolicy
from fedlearn.tasks.environment.normalization import Normalization, Observed
from fedlearn.tasks.environment.policy import Forward, FunctionPolicy, ModulePolicy, Stacked
from fedlearn.tasks.environment.recipe import STEP_INTERACTIONS, noise_for, settings_for
from fedlearn.tasks.film import Film
from fedlearn.tasks.members import ArrayMembers
from fedlearn.tasks.signatures import calling_line, check_takes, named_values
from fedlearn.tasks.task import Batch, Members, Setting, Task

if TYPE_CHECKING:
    import torch

    from fedlearn.tasks.environment.episodes import Episodes
    from fedlearn.tasks.environment.side_by_side import MakeEnv
    from fedlearn.tasks.environment.spaces import Act

MEAN, DEVIATION = "observations.mean", "observations.deviation"

Policy = ModulePolicy | FunctionPolicy | DefaultPolicy
"""A network, or anything else with tensors to train."""

Normalize = bool | Literal["running", "once"]

N_HELD_OUT = 10
"""Number of episodes on which the unperturbed policy is evaluated."""
FIRST_HELD_OUT_SEED = 2**31 - 2**16
"""The seed of the first held-out episode; members' seeds are smaller, and every environment takes 31 bits."""

MAX_ENVIRONMENTS = 512
"""The most environments at once; further episodes wait."""


def environment(
    env: "MakeEnv",
    policy: "torch.nn.Module | Callable[..., Any] | None" = None,
    *,
    start: Mapping[str, Any] | None = None,
    episodes: int = 1,
    action: "Act | None" = None,
    normalize: Normalize = True,
    max_steps: int = 100_000,
    survival_bonus: float = 0.0,
    scales: Mapping[str, float] | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> "EnvironmentTask":
    """A task that trains a policy for a high return in a gymnasium environment.

    `env` is a registered name, a function that makes an environment, or a function of a number that makes a vector
    environment (`gymnasium.vector.VectorEnv`) of so many episodes, which is reset with a list of their seeds. `policy`
    is a torch module, or a function that makes one, from observations [n, ...] to outputs [n, outputs]; with `start`,
    named arrays to train, it is instead a function `policy(arrays, observations)` that needs no torch. Where neither is
    given, a linear layer and beside it 16 hidden units of tanh learn from observations of up to 1,024 numbers.

    The largest output chooses among discrete actions, of several for each by outputs of its own, and outputs from -1 to
    1 reach all of bounded ones; `action`, from outputs [..., n] to actions [..., *shape], replaces this.

    A member plays `episodes` episodes of at most `max_steps` steps. Members are compared by their returns without the
    `survival_bonus` of each step, which an environment pays for as long as an episode lasts; looks at the unperturbed
    policy count it. With `normalize` a policy sees observations in standard deviations from their mean. Both are
    measured under random actions at first and travel with the weights; "running" renews them in each step by what
    members observed, "once" never. True is "running" for observations of up to 1,024 numbers. A member that meets an
    observation that is not finite does not count.
    """
    for name, number in (("episodes", episodes), ("max_steps", max_steps)):
        if number < 1:
            raise ValueError(f"{name}: expected 1 or more, got {number}")
    if normalize not in (True, False, "running", "once"):
        raise ValueError(f"normalize: expected True, False, 'running' or 'once', got {normalize!r}")
    return EnvironmentTask(
        env,
        _policy_of(policy, start),
        episodes=episodes,
        action=action,
        normalize=normalize,
        max_steps=max_steps,
        survival_bonus=survival_bonus,
        scales=named_values("scales", scales),
        settings=named_values("settings", settings),
    )


def _policy_of(policy: "torch.nn.Module | Callable[..., Any] | None", start: Mapping[str, Any] | None) -> Policy | None:
    """What the user gave as a policy; None if nothing."""
    if start is None:
        return None if policy is None else ModulePolicy(policy)
    if policy is None:
        raise ValueError("policy: expected a function of the arrays of `start` and of observations, got none")
    check_takes("policy", policy, "arrays", "observations")
    return FunctionPolicy(policy, start)


@final
class EnvironmentTask(Task):
    """The task that `environment` makes."""

    kind: ClassVar[str] = "environment"
    unit: ClassVar[str] = "episodes"

    def __init__(
        self,
        env: "MakeEnv",
        policy: Policy | None,
        *,
        episodes: int,
        action: "Act | None",
        normalize: Normalize,
        max_steps: int,
        survival_bonus: float,
        scales: Mapping[str, float],
        settings: Mapping[str, Setting],
    ) -> None:
        self._env, self._given_policy, self._n_episodes = env, policy, episodes
        self._action, self._normalize, self._max_steps = action, normalize, max_steps
        self._survival_bonus, self._made_at = survival_bonus, calling_line()
        self._scales, self._settings = scales, settings

    @cached_property
    def settings(self) -> Mapping[str, Setting]:  # type: ignore[override]  # it is read alone
        """Settings with which a policy learns most of so many episodes."""
        noise = noise_for(
            n_joints=self._episodes.n_joints,
            is_choice=self._episodes.is_choice,
            starts_at_zero=isinstance(self._policy, DefaultPolicy),
        )
        usual = settings_for(
            noise,
            n_weights=sum(weights.size for weights in self._policy.tensors.values()),
            fewest_members=self._episodes.n_in(STEP_INTERACTIONS) / self._n_episodes,
            threshold=None if self._survival_bonus else self._episodes.threshold,
        )
        return {**usual, **self._settings}

    @property
    def plain_arguments(self) -> tuple[str, Normalize, int] | None:
        """The name, `normalize` and `max_steps` by which `environment` makes an equal policy; None where it takes a
        function or a module too."""
        if not isinstance(self._env, str) or self._given_policy is not None or self._action is not None:
            return None
        return self._env, self._normalize, self._max_steps

    @cached_property
    def tensors(self) -> Mapping[str, Float32Array]:
        return {**self._policy.tensors, **self._measured}

    def draw_weights(self, seed: int) -> None:
        self._policy.draw_weights(seed)
        self.__dict__.pop("tensors", None)

    @cached_property
    def scales(self) -> Mapping[str, float]:  # type: ignore[override]  # it is read alone
        """Scales of the noise: measured arrays are neither perturbed nor learned."""
        return {**dict.fromkeys(self._measured, 0.0), **self._scales}

    @cached_property
    def statistics(self) -> Mapping[str, Statistic]:  # type: ignore[override]  # it is read alone
        """The tensors that are renewed by what members observe."""
        n_numbers = math.prod(self._episodes.observation_shape)
        is_running = self._normalize == "running" or (self._normalize is True and n_numbers <= MOST_INPUTS)
        return {MEAN: "mean", DEVIATION: "deviation"} if is_running else {}

    @property
    def frozen(self) -> Columns:
        return self._policy.frozen

    @property
    def work_per_member(self) -> int:
        return self._n_episodes

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        return self.observe(members, batch)[0]

    def observe(self, members: Members, batch: Batch) -> tuple[Float32Array, Int64Array]:
        assert isinstance(members, ArrayMembers)
        groups = np.array(batch.seeds, dtype=np.int64)[:, np.newaxis] + np.arange(self._n_episodes)
        seeds = np.repeat(groups % FIRST_HELD_OUT_SEED, members.group_size, axis=0)
        stacked, at_once = members.stacked(), max(MAX_ENVIRONMENTS // self._n_episodes, 1)
        returns, rows = [], []
        for first in range(0, len(members), at_once):
            some = slice(first, first + at_once)
            part = {name: array[some] for name, array in stacked.items()}
            observed = Observed(_normalization_from(part), len(seeds[some])) if self.statistics else None
            played = self._episodes.returns(
                seeds[some], self._policies, part, observed, survival_bonus=self._survival_bonus
            )
            returns.append(played.mean(axis=1))
            rows.append(NO_MOMENTS if observed is None else observed.moments())
        moments = np.concatenate(rows)
        if self.statistics:
            moments = moments.reshape(members.n_groups, members.group_size, -1).sum(axis=1).reshape(-1)
        return -np.concatenate(returns).astype(np.float32), moments

    def show(self, loss: float) -> tuple[str, float]:
        return "return", 0.0 - loss  # no -0

    def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:  # noqa: ARG002
        stacked = {name: array[np.newaxis] for name, array in self.layout.split(weights).items()}
        seeds = FIRST_HELD_OUT_SEED + np.arange(N_HELD_OUT, dtype=np.int64)[np.newaxis]
        returns = self._episodes.returns(seeds, self._policies, stacked)
        finite = returns[np.isfinite(returns)]
        return {"return": float(finite.mean()) if finite.size else math.nan}

    def player(self, weights: Float32Array) -> Callable[[Any], Any]:
        """The unperturbed policy, as a function from an observation to an action."""
        stacked = {name: array[np.newaxis] for name, array in self.layout.split(weights).items()}
        return self._episodes.player(self._policies(stacked))

    def film(self, weights: Float32Array) -> Film:
        stacked = {name: array[np.newaxis] for name, array in self.layout.split(weights).items()}
        return self._episodes.film(self._policies(stacked), seed=FIRST_HELD_OUT_SEED)

    @cached_property
    def _policy(self) -> Policy:
        return self._given_policy or DefaultPolicy(self._episodes.observation_shape, self._episodes.n_outputs)

    @cached_property
    def _episodes(self) -> "Episodes":
        try:
            from fedlearn.tasks.environment.episodes import Episodes
        except ModuleNotFoundError as error:
            if error.name != "gymnasium":
                raise
            raise ModuleNotFoundError(
                "environment: expected the package gymnasium, which is not installed; pip install 'fedlearn[gym]'",
                name=error.name,
            ) from error
        return Episodes(self._env, action=self._action, max_steps=self._max_steps, made_at=self._made_at)

    @cached_property
    def _measured(self) -> Mapping[str, Float32Array]:
        """What observations are normalised by at first."""
        if not self._normalize:
            self._episodes.check()
            return {}
        return dict(zip((MEAN, DEVIATION), self._episodes.measure(), strict=True))

    def _policies(self, stacked: Stacked) -> Forward:
        if not self._normalize:
            return self._policy.forward(stacked)
        own = {name: array for name, array in stacked.items() if name not in (MEAN, DEVIATION)}
        normalization, forward = _normalization_from(stacked), self._policy.forward(own)

        def seeing(observations: Float32Array) -> NDArray[Any]:
            return forward(normalization.seen(observations))

        return seeing


def _normalization_from(stacked: Stacked) -> Normalization:
    """The mean and deviation that these members share."""
    return Normalization(stacked[MEAN][0], stacked[DEVIATION][0])

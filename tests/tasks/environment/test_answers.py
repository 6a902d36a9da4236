"""Environments that do not answer as gymnasium's own do are told what was expected."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fedlearn.tasks.environment.side_by_side import Copies

Made = Callable[[], gymnasium.Env[Any, Any]]
ACTION = np.zeros(1, dtype=np.float32)


class Answering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose `reset` and `step` give what these functions make of what they gave."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        reset: Callable[[Any], Any] = lambda given: given,
        step: Callable[[Any], Any] = lambda given: given,
    ) -> None:
        super().__init__(env)
        self._reset, self._step = reset, step

    def reset(self, **given: Any) -> Any:  # noqa: ANN401
        return self._reset(self.env.reset(**given))

    def step(self, action: Any) -> Any:  # noqa: ANN401
        return self._step(self.env.step(action))


def after_a_step(env: Callable[[], Any]) -> tuple[list[float], float]:
    """The observation and reward after one step of an episode."""
    copies = Copies(env)
    playing = copies.begin([3])
    copies.step(playing, np.arange(1), [ACTION])
    return playing.observations[0].tolist(), float(playing.rewards[0])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"reset": lambda given: given[0]}, "reset to give 2 values, observation and info, got one of type ndarray"),
        ({"step": lambda given: (*given[:2], False, {})}, "step to give 5 values, observation, .*, got 4; .*`done`"),
        ({"step": lambda _: None}, "step to give 5 values, .*, got one of type NoneType"),
        ({"step": lambda given: (np.zeros(3), *given[1:])}, r"observations \[2\], .* observation_space .*, got \[3\]"),
        ({"reset": lambda given: (np.zeros((4, 2)), given[1])}, r"observations \[2\], .*, got \[4, 2\]"),
        ({"step": lambda given: (given[0], None, *given[2:])}, "a number as the reward of a step, got None"),
        ({"step": lambda given: (given[0], np.zeros(2), *given[2:])}, r"a number .*, got array\(\[0., 0.\]\)"),
    ],
)
def test_another_answer_is_refused_with_what_was_expected(
    chase: Callable[..., Made], answers: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=f"env: expected {expected}"):
        after_a_step(lambda: Answering(chase()(), **answers))


def test_an_array_of_one_number_is_a_reward_and_an_observation_may_have_more_axes(chase: Callable[..., Made]) -> None:
    def boxed(given: Any) -> Any:  # noqa: ANN401
        return given[0][:, np.newaxis], np.array([given[1]]), *given[2:]

    assert after_a_step(lambda: Answering(chase()(), step=boxed)) == after_a_step(chase())


@pytest.mark.parametrize("name", ["action_space", "observation_space"])
def test_an_environment_without_spaces_is_refused(name: str) -> None:
    class Bare(gymnasium.Env[Any, Any]):
        def __init__(self) -> None:
            for other in {"action_space", "observation_space"} - {name}:
                setattr(self, other, spaces.Discrete(2))

    with pytest.raises(ValueError, match=f"env: expected a gymnasium.Env whose {name} is .*, got None of a Bare; set"):
        after_a_step(Bare)

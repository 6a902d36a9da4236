from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.spaces import actor, is_choice, n_joints, n_outputs, observer


def floats(values: list[Any]) -> Float32Array:
    return np.array(values, dtype=np.float32)


def test_the_largest_output_chooses_a_discrete_action() -> None:
    act = actor(spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(act(np.array([[[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]]])), [[6, 5]])
    assert n_outputs(spaces.Discrete(3)) == 3


def test_each_of_several_discrete_actions_has_outputs_of_its_own() -> None:
    space = spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[0, 4]]))
    act = actor(space)
    outputs = np.array([[[0.0, 1.0, 0.0, 9.0, 1.0]], [[1.0, 0.0, 0.0, 1.0, 2.0]]])
    actions = act(outputs)
    np.testing.assert_array_equal(actions, [[[[1, 5]]], [[[0, 6]]]])
    assert all(space.contains(action) for action in actions[:, 0])
    assert n_outputs(space) == 5


def test_a_binary_action_is_one_where_its_output_is_above_zero() -> None:
    space = spaces.MultiBinary((2, 2))
    actions = actor(space)(np.array([[-1.0, 1.0, 0.0, 0.1]]))
    np.testing.assert_array_equal(actions, [[[0, 1], [0, 1]]])
    assert space.contains(actions[0])
    assert n_outputs(space) == 4


def test_outputs_from_minus_one_to_one_reach_all_of_a_bounded_action() -> None:
    space = spaces.Box(floats([[0.0, -4.0]]), floats([[1.0, 0.0]]))
    actions = actor(space)(np.array([[-1.0, 1.0], [0.0, 0.5], [-7.0, 7.0]]))
    np.testing.assert_allclose(actions, [[[0.0, 0.0]], [[0.5, -1.0]], [[0.0, 0.0]]])
    assert all(space.contains(action) for action in actions)
    assert n_outputs(space) == 2


def test_where_a_bound_is_infinite_outputs_are_actions() -> None:
    space = spaces.Box(floats([-1.0, 0.0]), floats([1.0, np.inf]))
    np.testing.assert_array_equal(actor(space)(np.array([[3.0, 30.0], [-3.0, -30.0]])), [[1.0, 30.0], [-1.0, 0.0]])


def test_where_all_bounds_are_infinite_outputs_are_actions() -> None:
    space = spaces.Box(-np.inf, np.inf, (2,))
    np.testing.assert_array_equal(actor(space)(np.array([[3.0, -30.0]])), [[3.0, -30.0]])


def test_observations_become_float32() -> None:
    observe, shape = observer(spaces.Box(0, 255, (2, 3), dtype=np.uint8))
    seen = observe(np.full((2, 3), 200, dtype=np.uint8))
    assert (str(seen.dtype), seen.shape, shape) == ("float32", (2, 3), (2, 3))


def test_observations_that_are_no_box_are_flattened() -> None:
    observe, shape = observer(spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,)))))
    assert shape == (5,)
    np.testing.assert_allclose(observe((1, np.array([0.5, -0.5], dtype=np.float32))), [0, 1, 0, 0.5, -0.5])


class OfAPackage(spaces.Space[Any]):
    """A space that says nothing of how it flattens."""


@pytest.mark.parametrize(
    ("space", "named"),
    [(spaces.Sequence(spaces.Discrete(3)), "Sequence"), (spaces.Dict({"mission": OfAPackage()}), "Dict")],
)
def test_observations_that_cannot_be_flattened_are_refused(space: spaces.Space[Any], named: str) -> None:
    message = f"env: expected observations that flatten to an array, got {named}.*; wrap the environment, for example"
    with pytest.raises(ValueError, match=message):
        observer(space)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), True),
        (spaces.MultiDiscrete([2, 3]), True),
        (spaces.MultiBinary(2), True),
        (spaces.Box(-1.0, 1.0, (2,)), False),
    ],
)
def test_discrete_actions_are_choices(space: spaces.Space[Any], *, expected: bool) -> None:
    assert is_choice(space) is expected


@pytest.mark.parametrize(
    ("space", "n"),
    [(spaces.Box(-1.0, 1.0, (2, 3)), 6), (spaces.Discrete(5), 0), (spaces.MultiBinary(4), 0)],
)
def test_joints_are_the_numbers_of_a_continuous_action(space: spaces.Space[Any], n: int) -> None:
    assert n_joints(space) == n

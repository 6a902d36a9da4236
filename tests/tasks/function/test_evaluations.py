"""Calls of the function: how many, with what, and what they found."""

import pickle
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedlearn.tasks.function.evaluations import Evaluations
from fedlearn.tasks.function.search_space import SearchSpace
from tests.patience import LIMIT_S

POINTS = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]])


def first_of(x: Any) -> Any:  # noqa: ANN401
    return x[..., 0]


@pytest.mark.parametrize("way", [{}, {"vectorized": True}, {"workers": 3}])
def test_losses_come_in_order_and_the_best_point_is_kept(way: dict[str, Any]) -> None:
    with Evaluations(first_of, SearchSpace([0.0, 0.0]), **way) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [3.0, 1.0, 2.0]
        assert evaluations.losses(POINTS + 1.0).tolist() == [4.0, 2.0, 3.0]
    assert evaluations.n == 6
    assert evaluations.best.tolist() == [1.0, 0.0]
    assert evaluations.best_loss == 1.0


def test_workers_call_at_the_same_time() -> None:
    met = threading.Barrier(3, timeout=LIMIT_S)

    def function(x: Any) -> Any:  # noqa: ANN401
        met.wait()
        return x[0]

    with Evaluations(function, SearchSpace([0.0, 0.0]), workers=3) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [3.0, 1.0, 2.0]


def test_losses_that_are_not_finite_are_never_the_best() -> None:
    with Evaluations(lambda _: [np.nan, -np.inf, 5.0], SearchSpace([0.0, 0.0]), vectorized=True) as evaluations:
        evaluations.losses(POINTS)
    assert (evaluations.best_loss, evaluations.best.tolist()) == (5.0, [2.0, 0.0])


@pytest.mark.parametrize("way", [{}, {"vectorized": True}, {"workers": 3}])
@pytest.mark.parametrize("bounds", [None, [(None, None), (0, 0)]])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_function_may_change_what_it_is_given(way: dict[str, Any], *, bounds: Any, is_named: bool) -> None:  # noqa: ANN401
    def function(x: Any) -> Any:  # noqa: ANN401
        array = x["x"] if is_named else x
        loss = array[..., 0].copy()
        array += 100.0
        return loss

    space = SearchSpace({"x": [0.0, 0.0]}, {"x": bounds}) if is_named else SearchSpace([0.0, 0.0], bounds)
    points = POINTS[:, : space.start.size].copy()
    with Evaluations(function, space, **way) as evaluations:
        assert evaluations.losses(points).tolist() == [3.0, 1.0, 2.0]
    np.testing.assert_array_equal(points, POINTS[:, : space.start.size])
    assert evaluations.best.tolist() == points[1].tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_that_raises_what_would_end_a_loop_is_told_so(workers: int) -> None:
    def ended(x: object) -> float:
        raise StopIteration(x)

    with (
        pytest.raises(RuntimeError, match="fun: expected a number, and it raised StopIteration"),
        Evaluations(ended, SearchSpace([0.0, 0.0]), workers=workers) as evaluations,
    ):
        evaluations.losses(POINTS)


def test_error_of_the_function_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError), Evaluations(lambda _: 1 / 0, SearchSpace([0.0, 0.0]), workers=2) as one:
        one.losses(POINTS)


@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.array(2.0), np.array([2.0]), [[2.0]], Fraction(2), np.array([2.0], dtype=object)],
)
def test_an_array_of_one_number_is_a_loss(value: Any) -> None:  # noqa: ANN401
    with Evaluations(lambda _: value, SearchSpace([0.0, 0.0])) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [2.0, 2.0, 2.0]


def test_a_tensor_of_one_number_is_a_loss_unless_it_has_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    with Evaluations(lambda _: torch.tensor([2.0]), SearchSpace([0.0, 0.0])) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [2.0, 2.0, 2.0]
    with (
        pytest.raises(ValueError, match=r"fun: expected a number, got Tensor: .*grad"),
        Evaluations(lambda _: torch.ones(1, requires_grad=True), SearchSpace([0.0, 0.0])) as recording,
    ):
        recording.losses(POINTS)


def test_a_loss_that_is_written_in_one_place_is_read_at_once() -> None:
    place = np.zeros(1)

    def function(x: Any) -> Any:  # noqa: ANN401
        place[0] = x[0]
        return place

    with Evaluations(function, SearchSpace([0.0, 0.0])) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [3.0, 1.0, 2.0]


def test_another_way_to_map_calls_the_function() -> None:
    mapped = list[int]()

    def mapping(function: Any, points: Any) -> Any:  # noqa: ANN401
        mapped.append(len(points))
        # As another process would.
        return [pickle.loads(pickle.dumps(function))(point) for point in points]

    with Evaluations(first_of, SearchSpace([0.0, 0.0]), workers=mapping) as evaluations:
        assert evaluations.losses(POINTS).tolist() == [3.0, 1.0, 2.0]
    assert mapped == [3]
    with (
        pytest.raises(ValueError, match=r"workers: expected \[3\], one number a point, got an array of shape \[2\]"),
        Evaluations(first_of, SearchSpace([0.0, 0.0]), workers=lambda _, points: [0.0 for _ in points][1:]) as less,
    ):
        less.losses(POINTS)


@pytest.mark.parametrize(
    ("function", "vectorized", "reason"),
    [
        (lambda _: None, False, "fun: expected a number, got None; return the loss"),
        (lambda _: None, True, "fun: expected a number, got None; return the loss"),
        (lambda _: [None], False, "fun: expected a number, got None; return the loss"),
        (lambda _: [0.0, None, 0.0], True, "fun: expected a number, got None; return the loss"),
        (lambda _: "much", False, "fun: expected a number, got str: could not convert"),
        (lambda _: 1j, False, "fun: expected a number, got complex: it is complex"),
        (lambda x: x, False, r"fun: expected a number, got an array of shape \[2\]"),
        (lambda x: x, True, r"fun: expected \[3\], one number a point, got an array of shape \[3, 2\]"),
    ],
)
def test_what_is_no_loss_is_refused(function: Any, vectorized: bool, reason: str) -> None:  # noqa: ANN401
    with (
        pytest.raises(ValueError, match=reason),
        Evaluations(function, SearchSpace([0.0, 0.0]), vectorized=vectorized) as evaluations,
    ):
        evaluations.losses(POINTS)


def test_a_function_of_many_points_may_give_a_column() -> None:
    points = np.array([[1.0, 2.0], [3.0, 0.0], [0.5, 0.5]])
    with Evaluations(lambda x: x.sum(1, keepdims=True), SearchSpace([0.0, 0.0]), vectorized=True) as evaluations:
        np.testing.assert_array_equal(evaluations.losses(points), [3.0, 3.0, 1.0])
        assert evaluations.best_loss == 1.0

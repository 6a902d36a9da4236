"""What may be searched: shapes, bounds, integers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedlearn.tasks.function.search_space import SearchSpace

INF = np.inf


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        (None, [-INF] * 3, [INF] * 3),
        ((0, None), [0.0] * 3, [INF] * 3),
        ([(0, 1), (None, 2), (-3, INF)], [0.0, -INF, -3.0], [1.0, 2.0, INF]),
        (([0, None, -3], [1, 2, INF]), [0.0, -INF, -3.0], [1.0, 2.0, INF]),
        ((np.zeros(3), np.array([1, 2, 3])), [0.0] * 3, [1.0, 2.0, 3.0]),
        (SimpleNamespace(lb=-1, ub=[1, 2, 3]), [-1.0] * 3, [1.0, 2.0, 3.0]),
    ],
)
def test_bounds_have_the_forms_of_scipy(bounds: Any, low: list[float], high: list[float]) -> None:  # noqa: ANN401
    space = SearchSpace([0.5, 0.5, 0.5], bounds)
    np.testing.assert_array_equal(space.low, low)
    np.testing.assert_array_equal(space.high, high)


def test_two_numbers_have_a_pair_of_bounds_each() -> None:
    space = SearchSpace([0.0, 0.0], [(0, 1), (-5, 5)])
    np.testing.assert_array_equal(space.low, [0.0, -5.0])
    assert SearchSpace([0.0], (0, 1)).high.tolist() == SearchSpace([0.0], [(0, 1)]).high.tolist() == [1.0]


def test_points_are_moved_to_what_is_allowed_and_the_way_is_told() -> None:
    space = SearchSpace([0.0, 0.0, 9.0], [(-1, 1), (-2.5, 2.5), (None, 4)], [False, True, False])
    np.testing.assert_array_equal(space.start, [0.0, 0.0, 4.0])
    points = np.array([[3.0, 1.4, 5.0], [0.3, -9.0, -7.0]])
    np.testing.assert_array_equal(space.inside(points), [[1.0, 1.0, 4.0], [0.3, -2.0, -7.0]])
    # Rounding is no way: neither is a point that bounds allow away from them.
    np.testing.assert_array_equal(space.distances(points), [[2.0, 0.0, 1.0], [0.0, 7.0, 0.0]])


def test_names_come_back_with_their_shapes_bounds_and_integers() -> None:
    space = SearchSpace({"a": np.zeros((2, 2)), "b": 3.7}, {"b": (0, 5)}, {"a": [[True, False], [False, False]]})
    np.testing.assert_array_equal(space.high, [INF] * 4 + [5.0])
    assert space.is_integer.tolist() == [True, False, False, False, False]
    given = space.given(np.arange(10.0).reshape(2, 5))
    np.testing.assert_array_equal(given["a"], [[[0, 1], [2, 3]], [[5, 6], [7, 8]]])
    np.testing.assert_array_equal(given["b"], [4.0, 9.0])
    assert SearchSpace([[1.0, 2.0]]).given(np.ones((3, 2))).shape == (3, 1, 2)


def test_a_number_whose_bounds_are_equal_stays_there_and_is_not_searched() -> None:
    space = SearchSpace([7.0, 0.5, 0.5], [(2, 2), (0, 1), (0.6, 1.4)], [False, False, True])
    assert (space.start.tolist(), space.low.tolist(), space.high.tolist()) == ([0.5], [0.0], [1.0])
    np.testing.assert_array_equal(space.given(np.array([[0.25], [0.75]])), [[2.0, 0.25, 1.0], [2.0, 0.75, 1.0]])
    named = SearchSpace({"a": [1.0, 2.0], "b": 3.0}, {"a": [(0, 0), (None, None)]}).given(np.array([[8.0, 9.0]]))
    assert (named["a"].tolist(), named["b"].tolist()) == ([[0.0, 8.0]], [9.0])


def test_first_deviations_follow_bounds_or_the_start() -> None:
    np.testing.assert_array_equal(SearchSpace([0.0, 0.0], [(0, 8), (0, None)]).usual_deviations(), [2.0, 0.5])
    np.testing.assert_array_equal(SearchSpace([100.0, -100.0]).usual_deviations(), [50.0, 50.0])


def test_random_points_lie_between_bounds_or_near_the_start() -> None:
    space = SearchSpace([0.0, 100.0], [(-4, -2), (None, None)])
    points = np.array([space.somewhere(np.random.default_rng(i), np.array([1.0, 3.0])) for i in range(200)])
    assert points[:, 0].min() < -3.9
    assert points[:, 0].max() > -2.1
    assert 2.0 < points[:, 1].std() < 4.0
    assert abs(points[:, 1].mean() - 100.0) < 1.0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([],), "x0: expected at least one number"),
        (({},), "x0: expected at least one number"),
        (([np.nan],), "x0: expected finite numbers for x0, got nan"),
        ((["a"],), "x0: expected numbers for x0, got"),
        (([0.0], (2, 1)), "bounds: expected low bounds below high ones, got 2 and 1"),
        (([0.0], (0.2, 0.8), True), "got 1 and 0 after rounding to integers"),
        (([0.0] * 3, [(0, 1)] * 2), r"bounds: expected \(low, high\) or 3 pairs of them for x0, or a list of lows"),
        (
            ([0.0] * 3, ([0] * 4, [1] * 4)),
            r"bounds: expected \(low, high\) or 3 pairs of them for x0, or a list of lows",
        ),
        (([0.0], 7), r"bounds: expected \(low, high\)"),
        (({"a": 0.0}, (0, 1)), r"bounds: expected a mapping with names among \['a'\] as in x0, got \(0, 1\)"),
        (({"a": 0.0}, {"b": (0, 1)}), r"bounds: expected a mapping with names among \['a'\] as in x0, got \['b'\]"),
        (([0.0] * 3, None, [True, False]), r"integrality: expected true or false, or \[3\] of them for x0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SearchSpace(*arguments)

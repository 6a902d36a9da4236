import math
from random import Random

import pytest

from fedlearn.terminal.curve import ASCII_BLOCKS, CAPACITY, LEAST_POINTS, RunningCurve, sparkline, trend_in_words


def curve_of(values: list[float], *, interval_s: float = 1.0) -> RunningCurve:
    curve = RunningCurve()
    for number, value in enumerate(values):
        curve.add(value, number * interval_s)
    return curve


def test_few_values_are_points_of_their_own() -> None:
    assert curve_of([3.0, 2.0, 1.0]).shape(10) == [3.0, 2.0, 1.0]
    assert curve_of([]).shape(10) == []


@pytest.mark.parametrize("n_values", [CAPACITY - 1, CAPACITY, 10 * CAPACITY, 77_777])
def test_a_long_curve_keeps_its_shape_in_bounded_memory(n_values: int) -> None:
    shape = curve_of([float(number) for number in range(n_values)]).shape(10)
    expected = [(number + 0.5) * n_values / 10 for number in range(10)]
    assert shape == pytest.approx(expected, rel=0.03, abs=0.02 * n_values)


def test_a_value_that_is_none_leaves_the_curve_alone() -> None:
    assert curve_of([1.0, math.nan, math.inf, 2.0]).shape(10) == [1.0, 2.0]


def test_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert sparkline([1.0, 2.0], blocks=ASCII_BLOCKS) == "_#"
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([]) == ""


def test_points_that_fall_to_a_thirtieth_are_a_line_by_powers_of_ten() -> None:
    assert sparkline([1e4, 1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3]) == "█▇▆▅▄▃▂▁"
    assert sparkline([30.0, 6.0, 1.0], blocks="abc") == "cba"
    assert sparkline([29.0, 6.0, 1.0], blocks="abc") == "caa"
    assert sparkline([1.0, 10.0, 100.0], blocks="abc") == "aac"  # such as returns, which rise
    assert sparkline([100.0, 10.0, 0.0], blocks="abc") == "caa"


@pytest.mark.parametrize("interval_s", [0.01, 1.0, 60.0])
def test_the_trend_of_a_noisy_fall_is_told(interval_s: float) -> None:
    random = Random(1)
    values = [5.0 - 0.02 * number * interval_s / 60 + random.gauss(0, 1e-4) for number in range(5000)]
    assert curve_of(values, interval_s=interval_s).per_minute() == pytest.approx(-0.02, rel=0.2)


def test_noise_alone_is_steady() -> None:
    random = Random(7)
    assert curve_of([5.0 + random.gauss(0, 1.0) for _ in range(100)]).per_minute() == 0.0


def test_no_trend_is_told_of_few_points() -> None:
    assert curve_of([float(number) for number in range(LEAST_POINTS - 1)]).per_minute() is None
    assert curve_of([float(number) for number in range(LEAST_POINTS)]).per_minute() == pytest.approx(60.0)
    # However many values: within one second they are one point.
    assert curve_of([float(number) for number in range(50)], interval_s=0.01).per_minute() is None


def test_the_trend_is_of_late_not_of_the_whole_run() -> None:
    values = [1000.0 - number for number in range(1000)] + [float(number) for number in range(500)]
    assert curve_of(values).per_minute() == pytest.approx(60.0)


def test_trends_are_said_in_a_unit_that_shows_them() -> None:
    trends = [None, 0.0, -0.021, 2.345, -0.0004]
    said = ["", "steady", "falling by 0.021 a minute", "rising by 2.3 a minute", "falling by 0.024 an hour"]
    assert [trend_in_words(trend) for trend in trends] == said

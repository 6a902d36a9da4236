import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.es.growth import Growth, usual_step_s, warmed

GROWTH = Growth(population=1000, largest_factor=4.0)


@pytest.mark.parametrize(
    ("population", "expected"), [(1, 1.0), (1000, 1.0), (4000, 2.0), (9000, 3.0), (16_000, 4.0), (10**9, 4.0)]
)
def test_rate_follows_the_square_root_of_the_population_up_to_its_largest(population: int, expected: float) -> None:
    assert GROWTH.factor_of(population) == expected


def test_a_rate_that_may_not_grow_stays() -> None:
    fixed = Growth(1000)
    assert [fixed.factor_of(population) for population in (500, 1000, 1001, 10**6)] == [1.0] * 4
    assert fixed.largest_population == 1000


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 10**9), st.integers(1, 10**9))
def test_rate_grows_with_the_population_and_ends_at_the_largest_one(
    population: int, times: int, one: int, other: int
) -> None:
    growth = Growth(population, times**0.5)
    assert growth.largest_population == population * times
    assert growth.factor_of(growth.largest_population) == pytest.approx(growth.largest_factor)
    assert 1.0 <= growth.factor_of(min(one, other)) <= growth.factor_of(max(one, other)) <= growth.largest_factor


@pytest.mark.parametrize(
    ("duration_s", "expected"), [(0.0, 0.4), (1e-3, 0.02), (30.0, 0.02), (150.0, 0.1), (600.0, 0.4), (1e9, 0.4)]
)
def test_a_run_has_many_steps_however_short_it_is(duration_s: float, expected: float) -> None:
    assert usual_step_s(duration_s, 1e9) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("elapsed_s", "expected"), [(0.0, 0.02), (6.0, 0.02), (15.0, 0.05), (30.0, 0.1), (60.0, 0.1), (600.0, 0.1)]
)
def test_steps_begin_small(elapsed_s: float, expected: float) -> None:
    assert usual_step_s(150.0, elapsed_s) == pytest.approx(expected)


def test_a_population_rises_from_one_group_by_equal_shares() -> None:
    assert [warmed(64, step, 6, least=1) for step in range(8)] == [1, 2, 4, 8, 16, 32, 64, 64]
    assert [warmed(64, step, 0, least=1) for step in (0, 9)] == [64, 64]


def test_a_rising_population_has_a_group_for_each_machine() -> None:
    assert [warmed(64, step, 6, least=5) for step in (0, 3, 6)] == [5, 8, 64]
    assert warmed(4, 0, 6, least=5) == 4

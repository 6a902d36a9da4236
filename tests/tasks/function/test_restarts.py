"""Searches after a search."""

import numpy as np

from fedlearn.tasks.function.restarts import Beginning, RestartPlan


def test_large_populations_double_and_small_searches_get_as_many_evaluations() -> None:
    plan = RestartPlan(10, np.random.default_rng(0))
    assert plan.first() == Beginning(10, 1.0, 0)
    spent, large = {True: 0, False: 0}, list[int]()
    beginning = plan.after(500, 10**9)
    assert beginning == Beginning(20, 1.0, 0)
    for _ in range(60):
        is_large = beginning.is_large
        if is_large:
            large.append(beginning.population)
            used = 100 * beginning.population
        else:
            assert 4 <= beginning.population <= large[-1] / 2
            assert 0.01 <= beginning.factor <= 1.0
            assert beginning.limit <= max(50 * large[-1], beginning.population)
            used = beginning.limit
        spent[is_large] += used
        beginning = plan.after(used, 0)
    assert large == [20 * 2**k for k in range(len(large))]
    assert len(large) > 3
    # Neither kind is ahead by more than one search of the other's.
    assert abs(spent[True] - spent[False]) <= 100 * large[-1]


def test_second_population_is_four_times_as_large_where_few_evaluations_are_left() -> None:
    seconds = [RestartPlan(10, np.random.default_rng(0)).after(500, left).population for left in (2000, 1999)]
    assert seconds == [20, 40]

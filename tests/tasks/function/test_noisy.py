"""Steps have more members as evaluations of a noisy function add up."""

import pytest

from fedlearn.es.growth import warmed
from fedlearn.tasks.function.noisy import MOST_GROUPS, groups_after, warmup_steps


@pytest.mark.parametrize(
    ("n_evaluations", "groups"), [(0, 1), (799, 1), (800, 2), (50_399, 63), (50_400, 64), (10**9, 64)]
)
def test_each_eight_evaluations_of_a_number_add_a_group(n_evaluations: int, groups: int) -> None:
    assert groups_after(n_evaluations, 100) == groups


def test_a_warmup_has_about_the_groups_that_its_evaluations_allow() -> None:
    n, group_size = 100, 17
    steps, n_evaluations = warmup_steps(n, group_size), 0
    for step in range(steps):
        groups = warmed(MOST_GROUPS, step, steps, least=1)
        allowed = groups_after(n_evaluations, n)
        assert allowed / 1.5 <= groups <= 1.5 * allowed + 1
        n_evaluations += groups * group_size
    assert groups_after(n_evaluations, n) > MOST_GROUPS / 2

import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import TrialResults, Trials

TRIALS = Trials(step=7, perturbation=Perturbation(0.02, 1), group_size=8, first_member=40, n_members=32)


def test_members_form_whole_groups_that_are_counted_from_the_steps_first() -> None:
    assert (TRIALS.first_group, TRIALS.n_groups) == (5, 4)


@pytest.mark.parametrize(
    ("first_group", "n_groups", "members"), [(0, 4, (40, 32)), (0, 1, (40, 8)), (1, 2, (48, 16)), (3, 1, (64, 8))]
)
def test_a_part_is_some_of_the_groups_and_differs_in_nothing_else(
    first_group: int, n_groups: int, members: tuple[int, int]
) -> None:
    part = TRIALS.part(first_group, n_groups)
    assert (part.first_member, part.n_members) == members
    assert (part.step, part.perturbation, part.group_size) == (7, Perturbation(0.02, 1), 8)
    assert (part.first_group, part.n_groups) == (5 + first_group, n_groups)


def test_results_have_no_estimate_unless_one_is_given() -> None:
    results = TrialResults(np.zeros(3, dtype=np.float32))
    assert (results.estimate.numbers.size, results.estimate.shifts.size) == (0, 0)

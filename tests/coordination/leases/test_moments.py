"""Moments of what members observe come with Results, and are counted where their losses are."""

import numpy as np
import pytest

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.sums.moments import Int64Array
from tests.coordination.leases.test_open_step import GROUP, numbered, population

OBSERVING = ParameterLayout(
    (
        TensorSpec("mean", (2,), 0.0, statistic="mean"),
        TensorSpec("deviation", (2,), 0.0, statistic="deviation"),
        TensorSpec("vector", (3,)),
    )
)


def opened(perturbation: Perturbation | None = None) -> OpenStep:
    asked = population(perturbation or Perturbation(0.1, 1))
    return OpenStep(asked, opened_at=1.0, deadline=2.0, first_member=100, layout=OBSERVING)


def moments(first: int, n_groups: int) -> Int64Array:
    """Those of groups that made 10 observations, the first of which sums up to `first`."""
    return np.array([(10, first + group, 0, 10**4, 0) for group in range(n_groups)]).reshape(-1)


def take(lease: Lease, n_groups: int, rows: Int64Array) -> str:
    return lease.take(lease.end_member, numbered(0, n_groups * GROUP), NO_ESTIMATE, GROUP, moments=rows)


def test_moments_are_in_the_order_of_the_losses_that_count() -> None:
    step = opened()
    first, held, second = step.lease(12), step.lease(4, Reputation("x"), is_held=True), step.lease(4)
    assert take(second, 1, moments(7, 1)) == ""
    assert take(first, 1, moments(1, 1)) == ""
    assert take(first, 2, moments(2, 2)) == ""
    assert take(held, 1, moments(5, 1)) == ""
    found = step.moments()
    assert found is not None
    assert found.tolist() == [[10, first, 0, 10**4, 0] for first in (1, 2, 3, 7)]
    held.release()
    first.void()
    assert first.moments == []
    found = step.moments()
    assert found is not None
    assert found[:, 1].tolist() == [5, 7]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (moments(0, 1), "Result: moments: expected 5 for each of 2 groups, got 5"),
        (np.zeros(0, dtype=np.int64), "Result: moments: expected 5 for each of 2 groups, got 0"),
        (moments(0, 2) * -1, "Result: moments: expected counts from 0"),
    ],
)
def test_false_moments_are_named_and_nothing_of_the_result_counts(rows: Int64Array, told: str) -> None:
    step = opened()
    lease = step.lease(12)
    assert told in take(lease, 2, rows)
    assert lease.n_received == 0
    assert step.n_members == 0


def test_a_copy_brings_moments_too() -> None:
    step = opened()
    step.lease(8)
    copy = step.copy(100, 8, Reputation("other"))
    assert "expected 5" in take(copy, 1, moments(0, 2))
    assert take(copy, 1, moments(3, 1)) == ""
    step.count_a_copy()
    found = step.moments()
    assert found is not None
    assert found[:, 1].tolist() == [3]


def test_some_groups_moments_are_found_whatever_results_they_came_in() -> None:
    lease = opened().lease(16)
    take(lease, 1, moments(1, 1))
    take(lease, 3, moments(2, 3))
    assert lease.moments_of(0, 2).tolist() == moments(1, 2).tolist()
    assert lease.moments_of(2, 3).tolist() == moments(3, 1).tolist()


def test_what_is_handed_over_has_its_moments() -> None:
    lease = opened().lease(16)
    take(lease, 2, moments(1, 2))
    assert lease.hand_over()[2].tolist() == moments(1, 2).tolist()
    take(lease, 1, moments(9, 1))
    assert lease.hand_over()[2].tolist() == moments(9, 1).tolist()


def test_none_come_where_nothing_is_observed_or_gradients_are_measured() -> None:
    layout = ParameterLayout((TensorSpec("vector", (3,)),))
    plain = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=2.0, first_member=100, layout=layout)
    summed = opened(Perturbation(0.0, 0, "nothing"))
    assert plain.moments() is None
    assert summed.moments() is None
    assert "expected 0" in take(plain.lease(4), 1, moments(0, 1))

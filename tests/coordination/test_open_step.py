import numpy as np
import pytest

from fedlearn.coordination.open_step import Float32Array, Lease, OpenStep
from fedlearn.es.strategy import Population

GROUP = 4


def numbered(first: int, count: int) -> Float32Array:
    return np.arange(first, first + count, dtype=np.float32)


@pytest.fixture
def step() -> OpenStep:
    population = Population(
        step=7,
        sigma=0.1,
        rank=1,
        group_size=GROUP,
        antithetic=False,
        limit=64,
        learning_rate=0.01,
        elapsed_s=0.0,
        shaping_scale=0.0,
    )
    return OpenStep(population, opened_at=1.0, deadline=2.0, first_member=100)


def test_leases_follow_one_another_without_overlap(step: OpenStep) -> None:
    leases = [step.lease(quota) for quota in (8, 4, 12)]
    assert [(lease.first_member, lease.quota) for lease in leases] == [(100, 8), (108, 4), (112, 12)]
    assert step.next_member == 124


def test_results_in_pieces_complete_a_lease() -> None:
    lease = Lease(8, 12)
    assert lease.take(8, numbered(8, 4), GROUP) == ""
    assert not lease.is_done
    assert lease.take(12, numbered(12, 8), GROUP) == ""
    assert lease.is_done


@pytest.mark.parametrize(
    ("first_member", "losses", "complaint"),
    [
        (0, numbered(0, 4), "expected 12, got 0"),  # somebody else's
        (8, numbered(8, 4), "expected 12, got 8"),  # again
        (16, numbered(16, 4), "expected 12, got 16"),  # one left out
        (12, numbered(12, 12), "at most 8 members, got shape [12]"),
        (12, numbered(12, 6), "whole groups of 4"),
        (12, numbered(12, 0), "whole groups of 4"),
    ],
)
def test_result_that_is_not_what_comes_next_is_named_and_not_counted(
    first_member: int, losses: Float32Array, complaint: str
) -> None:
    lease = Lease(8, 12)
    lease.take(8, numbered(8, 4), GROUP)
    assert complaint in lease.take(first_member, losses, GROUP)
    assert lease.n_received == 4


def test_lease_of_someone_who_left_keeps_its_results(step: OpenStep) -> None:
    lease = step.lease(8)
    lease.take(100, numbered(0, 4), GROUP)
    lease.end()
    assert step.is_complete
    assert step.n_members == 4


def test_lease_of_someone_not_trusted_loses_its_results(step: OpenStep) -> None:
    lease, other = step.lease(8), step.lease(4)
    lease.take(100, numbered(0, 8), GROUP)
    lease.void()
    assert (step.n_members, step.is_complete) == (0, False)
    other.take(108, numbered(0, 4), GROUP)
    assert (step.n_members, step.is_complete) == (4, True)
    assert step.n_contributors == 1
    assert step.collect()[0] == ((108, 4),)


def test_collected_spans_are_ascending_joined_where_they_touch_and_in_order_of_their_losses(step: OpenStep) -> None:
    leases = [step.lease(quota) for quota in (8, 4, 8, 4, 4)]
    for index, count in ((4, 4), (2, 4), (1, 4), (0, 8)):  # the fourth sent nothing
        leases[index].take(leases[index].first_member, numbered(leases[index].first_member, count), GROUP)
    spans, losses = step.collect()
    assert spans == ((100, 16), (124, 4))
    assert losses.tolist() == [*range(100, 116), *range(124, 128)]
    assert losses.dtype == np.float32
    assert step.n_contributors == 4

"""Moments of what members observed are checked group by group, with their losses."""

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.es.optimizers import Adam
from fedlearn.es.strategy import Population
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.sums.moments import Int64Array
from tests.coordination.audits.test_auditor import ADA, BOB, GROUP, LOSSES, N_GROUPS, auditor_of, claim_of
from tests.coordination.leases.test_moments import OBSERVING, moments

WIDTH = 5


def compared(false_group: int | None) -> list[Claim]:
    """What the server has to look at of a lease and a copy that begins a group later, with the same losses."""
    population = Population(0, LOSSES, GROUP, N_GROUPS * GROUP, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=0, layout=OBSERVING)
    lease, copy = step.lease(N_GROUPS * GROUP, ADA), step.copy(GROUP, (N_GROUPS - 1) * GROUP, BOB)
    losses, own = np.arange(N_GROUPS * GROUP, dtype=np.float32), moments(1, N_GROUPS)
    again = own[WIDTH:].copy()
    if false_group is not None:
        again[(false_group - 1) * WIDTH] *= 2
    assert not lease.take(0, losses, NO_ESTIMATE, GROUP, moments=own)
    assert not copy.take(GROUP, losses[GROUP:], NO_ESTIMATE, GROUP, moments=again)
    (overlap,) = lease.overlaps
    return auditor_of(0.02, seed=3).compare(overlap, step)


@pytest.mark.parametrize("group", range(1, N_GROUPS))
def test_the_server_looks_at_the_group_whose_moments_differ(group: int) -> None:
    claims = compared(group)
    assert [claim.trials.first_member for claim in claims] == [group * GROUP] * 2
    honest: Int64Array = moments(1 + group, 1)
    assert claims[0].moments.tolist() == honest.tolist()
    assert claims[1].moments.tolist() == [20, *honest[1:].tolist()]


def test_two_that_agree_are_believed() -> None:
    assert compared(None) == []


def test_a_group_is_drawn_with_its_own_moments() -> None:
    claim = msgspec.structs.replace(claim_of(), moments=moments(1, N_GROUPS), lease=Lease(0, 4, is_held=True))
    drawn = auditor_of(1.0).draw(claim)
    assert drawn
    for one in drawn:
        assert one.moments.tolist() == moments(1 + one.trials.first_member // GROUP, 1).tolist()

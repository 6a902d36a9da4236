from random import Random

import numpy as np

from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.audits.inspecting import claims_to_check
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Population
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.wire.messages import Result

GROUP = 4
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))


def inspected(*, share: float, is_local: bool = False, is_copy: bool = False) -> list[Claim]:
    population = Population(3, Perturbation(0.1, 1), GROUP, 16 * GROUP, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=8, layout=LAYOUT, block=b"a")
    volunteer = Volunteer(7, reputation=Reputation("Ada", "Ada", is_local=is_local))
    first = step.lease(2 * GROUP, volunteer.reputation)
    copy = step.copy(first.first_member, 2 * GROUP, Reputation("Bob", "Bob"))
    lease = copy if is_copy else first
    result = Result(3, lease.first_member, np.arange(2 * GROUP, dtype=np.float32), bytes(8))
    auditor = Auditor(share, Ledger(0, 0.0, work_per_member=1), lottery=Random(1))
    return claims_to_check(volunteer, lease, step, result, auditor)


def test_groups_are_drawn_of_a_result_with_its_block_and_its_losses() -> None:
    claims = inspected(share=1.0)
    assert claims
    for claim in claims:
        begin = claim.trials.first_member - 8
        assert (claim.reputation.identity, claim.block, claim.trials.step) == ("Ada", b"a", 3)
        assert claim.losses.tolist() == list(range(begin, begin + claim.trials.n_members))
        assert claim.log is None


def test_nothing_is_drawn_without_audits_nor_of_the_servers_own_nor_of_a_copy() -> None:
    assert inspected(share=0.0) == inspected(share=1.0, is_local=True) == inspected(share=1.0, is_copy=True) == []


def test_where_a_lease_and_its_copy_differ_both_holders_claims_are_checked() -> None:
    population = Population(3, Perturbation(0.1, 1), GROUP, 16 * GROUP, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=8, layout=LAYOUT, block=b"a")
    ada, bob = (Volunteer(number, reputation=Reputation(name, name)) for number, name in enumerate(("Ada", "Bob")))
    lease = step.lease(2 * GROUP, ada.reputation)
    copy = step.copy(lease.first_member, 2 * GROUP, bob.reputation)
    losses = np.arange(2 * GROUP, dtype=np.float32)
    lease.take(lease.first_member, losses, NO_ESTIMATE, GROUP)
    copy.take(copy.first_member, -losses, NO_ESTIMATE, GROUP)
    auditor = Auditor(0.01, Ledger(0, 0.0, work_per_member=1), lottery=Random(1))
    claims = claims_to_check(bob, copy, step, Result(3, copy.first_member, -losses, bytes(8)), auditor)
    assert [(claim.reputation.name, claim.block) for claim in claims] == [("Ada", b"a"), ("Bob", b"a")]

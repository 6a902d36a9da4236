from random import Random

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.effects import Send, SendBlock
from fedlearn.coordination.leases.leasing import give, lease_out, send_block
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Population
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment

GROUP, N_GROUPS = 4, 16
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))


def opened(block: bytes = NO_BLOCK) -> OpenStep:
    population = Population(3, Perturbation(0.1, 1), GROUP, N_GROUPS * GROUP, Adam(0.01), 0.0, 0.0)
    return OpenStep(population, opened_at=0.0, deadline=1.0, first_member=0, layout=LAYOUT, block=block)


def test_a_block_is_sent_once_and_no_block_never() -> None:
    volunteer = Volunteer(7)
    assert send_block(volunteer, NO_BLOCK) == []
    assert send_block(volunteer, b"a") == [SendBlock(7, b"a")]
    assert send_block(volunteer, b"a") == []
    assert send_block(volunteer, b"b") == [SendBlock(7, b"b")]


def test_who_is_given_a_lease_is_sent_its_block_first() -> None:
    step, volunteer = opened(b"a"), Volunteer(7)
    lease = step.lease(2 * GROUP, volunteer.reputation)
    block, sent = give(volunteer, lease, step)
    assert block == SendBlock(7, b"a")
    assert sent == Send(7, step.assignment(lease))
    assert volunteer.lease is lease


def test_a_step_is_leased_out_to_all_who_are_ready_in_shares_of_their_speed() -> None:
    step, volunteers = opened(), [Volunteer(1, members_per_s=30.0), Volunteer(2, members_per_s=10.0)]
    effects = lease_out(
        step, volunteers, Auditor(0.0, Ledger(0, 0.0, work_per_member=1), lottery=Random(1)), last_s=1.0
    )
    sent = [effect for effect in effects if isinstance(effect, Send)]
    assert [effect.peer for effect in sent] == [1, 2]
    assignments = [effect.message for effect in sent if isinstance(effect.message, Assignment)]
    assert [(one.step, one.quota) for one in assignments] == [(3, 12 * GROUP), (3, 4 * GROUP)]
    assert effects == sent


def test_nobody_is_asked_for_more_than_its_most() -> None:
    speeds = {"Ada": 90.0, "Bob": 10.0}
    volunteers = [
        Volunteer(peer, members_per_s=speed, reputation=Reputation(name))
        for peer, (name, speed) in enumerate(speeds.items())
    ]
    step = opened()
    lease_out(
        step, volunteers, Auditor(0.0, Ledger(0, 0.0, work_per_member=1), lottery=Random(1)), last_s=1.0, most=0.5
    )
    quotas = [volunteer.lease.quota for volunteer in volunteers if volunteer.lease is not None]
    assert quotas == [8 * GROUP, 8 * GROUP]

"""Leases members to parties, with the messages that tell their volunteers."""

from collections.abc import Sequence
from functools import partial

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.audits.copies import deal
from fedlearn.coordination.effects import Send, SendBlock, ServerEffect
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.limiting import counted_speeds
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.leases.sharing import share_step
from fedlearn.coordination.people.roster import Party, Volunteer
from fedlearn.tasks.blocks import NO_BLOCK


def lease_out(
    step: OpenStep, ready: Sequence[Party], auditor: Auditor, *, last_s: float, most: float = 1.0
) -> list[ServerEffect]:
    """Shares the step among the parties that are ready, at most `most` of it to one; the last step took `last_s`."""
    auditor.begin_step()
    effects: list[ServerEffect] = []
    number, group_size = step.population.step, step.population.group_size
    n_groups = step.population.limit // group_size
    expected = last_s / group_size  # groups of a party that does one member a second
    shares = share_step(
        ready,
        n_groups,
        step=number,
        trusts=auditor.trusts,
        expected=expected,
        counted=partial(counted_speeds, most=most),
    )
    for party, lease in deal(step, shares, auditor):
        effects += give(party, lease, step)
    return effects


def give(party: Party, lease: Lease, step: OpenStep) -> list[ServerEffect]:
    """Leases members to a party, and sends its volunteers what they need for them."""
    assignment = step.assignment(lease)
    party.begin(lease, assignment)
    effects: list[ServerEffect] = []
    for volunteer in party.volunteers:
        effects += [*send_block(volunteer, step.block), Send(volunteer.peer, assignment)]
    return effects


def send_block(volunteer: Volunteer, block: bytes) -> list[ServerEffect]:
    """Sends a block of data, unless there is none or the volunteer holds it."""
    if block == NO_BLOCK or block in volunteer.blocks:
        return []
    volunteer.blocks.append(block)
    return [SendBlock(volunteer.peer, block)]

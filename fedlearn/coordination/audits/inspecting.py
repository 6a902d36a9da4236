"""Chooses what is computed again of a Result that has come."""

from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.effects import Recompute, ServerEffect
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.roster import Party
from fedlearn.wire.messages import Result


def inspect(party: Party, lease: Lease, step: OpenStep, result: Result, auditor: Auditor) -> list[ServerEffect]:
    """Has some of a Result computed again, by lot, and compares it with others' results of the same members."""
    disputed = [claim for overlap in lease.overlaps for claim in auditor.compare(overlap, step, step.block)]
    if lease.is_copy:
        return [Recompute(claim) for claim in disputed]
    trials = step.trials(result.first_member, result.losses.size, in_bytes=result.estimate.is_exact)
    whole = Claim(party.reputation, trials, step.block, result.losses, result.estimate, lease, result.moments)
    drawn = [_traced(party, claim) for claim in auditor.draw(whole)]
    return [Recompute(claim) for claim in (*disputed, *drawn)]


def _traced(party: Party, claim: Claim) -> Claim:
    """The claim, with the route of its trials through a crew."""
    log = party.log(claim.trials.first_member, claim.trials.n_members)
    return claim if log is None else claim.through(log)

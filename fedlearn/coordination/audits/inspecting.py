"""The parts of a Result that the server computes again."""

from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.roster import Party
from fedlearn.wire.messages import Result


def claims_to_check(party: Party, lease: Lease, step: OpenStep, result: Result, auditor: Auditor) -> list[Claim]:
    """The claims in a Result that the server computes again.

    Where members are in a copy as well, and both results are in, the auditor compares the two and names the group that
    is to decide between them. Of other results it draws some by lot. A copy's own results do not count, so they are
    only compared.
    """
    disputed = [claim for overlap in lease.overlaps for claim in auditor.compare(overlap, step)]
    if lease.is_copy:
        return disputed
    trials = step.trials(result.first_member, result.losses.size, in_bytes=result.estimate.is_exact)
    whole = Claim(party.reputation, trials, step.block, result.losses, result.estimate, lease, result.moments)
    return [*disputed, *(_with_route(claim, party) for claim in auditor.draw(whole))]


def _with_route(claim: Claim, party: Party) -> Claim:
    """The claim, with the route of its trials where the party is a crew."""
    log = party.log(claim.trials.first_member, claim.trials.n_members)
    return claim if log is None else claim.through(log)

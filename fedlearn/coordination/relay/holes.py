"""Finds members of a lease that nobody below works on any more, and idle volunteers for them."""

from collections.abc import Iterable, Sequence

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.roster import Party
from fedlearn.coordination.steps.closing import take_back

Span = tuple[int, int]
"""The first member and the number of members."""


def holes_in(leases: Iterable[Lease], begin: int, end: int) -> list[Span]:
    """The members from `begin` to before `end` that no lease covers; a lease that was ended covers its results."""
    holes, at = [], begin
    within = [lease for lease in leases if lease.first_member < end]
    for lease in sorted(within, key=lambda lease: lease.first_member):
        if at < lease.first_member:
            holes.append((at, lease.first_member - at))
        at = max(at, lease.first_member + lease.quota)
    return [*holes, (at, end - at)] if at < end else holes


def pieces(holes: Sequence[Span], n_volunteers: int, group_size: int) -> list[tuple[int, int]]:
    """The holes in whole groups, cut so that `n_volunteers` get about the same; there may be more pieces than that."""
    n_groups = sum(count for _, count in holes) // group_size
    most = -(-n_groups // max(n_volunteers, 1)) * group_size
    return [
        (first + offset, min(most, count - offset)) for first, count in holes for offset in range(0, count, most or 1)
    ]


def idle(parties: Iterable[Party], step: int) -> list[Party]:
    """The parties that have nothing to do in this step, the fastest first."""
    found = [
        party
        for party in parties
        if party.is_ready
        and (party.lease is None or party.lease.is_done)
        and party.cut_at != step
        and party.reputation.benched_until <= step
    ]
    return sorted(found, key=lambda party: -(party.members_per_s or 0.0))


def cut_late(step: OpenStep, parties: Iterable[Party], now: float) -> None:
    """Takes back the leases that the step has waited for long enough; their results count."""
    best = step.most_done
    for party in parties:
        lease = party.lease
        if lease is None or lease.is_done or not lease.gates:
            continue
        take_back(step, party, best, now=now)
        party.cut_at = step.population.step
        lease.end()

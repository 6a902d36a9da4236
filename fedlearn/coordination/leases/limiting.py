"""Limits the share of a step that one owner of volunteers has, by lowering the speeds that count."""

from collections.abc import Sequence

from fedlearn.coordination.people.roster import Party
from fedlearn.wire.networks import LOOPBACK, network_of


def counted_speeds(ready: Sequence[Party], most: float) -> list[float | None]:
    """Members per second of each party, lowered where an owner would do more than the share `most` of what is
    counted.

    Volunteers that share an identity or an address have one owner. The server's own are not limited. Where there are so
    few owners that shares of `most` make no whole, all are as fast as the slowest.
    """
    speeds = [party.members_per_s for party in ready]
    owners = _owners(ready) if most < 1.0 else []
    own = [sum(speeds[index] or 0.0 for index in indices) for indices in owners]
    limit = _limit(own, sum(speed or 0.0 for speed in speeds) - sum(own), most)
    for indices, speed in zip(owners, own, strict=True):
        if speed > limit:
            for index in indices:
                speeds[index] = (speeds[index] or 0.0) * limit / speed
    return speeds


def _owners(ready: Sequence[Party]) -> list[set[int]]:
    """The indices of the parties of each owner."""
    found: list[tuple[set[str], set[int]]] = []
    for index, party in enumerate(ready):
        if party.reputation.is_local:
            continue
        network = network_of(party.address) if party.address else LOOPBACK
        marks = {party.reputation.identity} | ({network} - {LOOPBACK})
        same = [owner for owner in found if owner[0] & marks]
        found = [owner for owner in found if not owner[0] & marks]
        found.append((marks.union(*(owner[0] for owner in same)), {index}.union(*(owner[1] for owner in same))))
    return [indices for _, indices in found]


def _limit(own: Sequence[float], others: float, most: float) -> float:
    """The speed L to which the fastest are limited: `most` of what all do, once those do no more than L."""
    ordered = sorted(own, reverse=True)
    for n, speed in enumerate(ordered):
        limit = most * (sum(ordered[n:]) + others) / (1.0 - n * most)
        if speed <= limit:
            return limit
    return most * others / (1.0 - len(ordered) * most) if others > 0.0 else min(ordered, default=0.0)

from typing import Any

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.relay.holes import holes_in, idle, pieces


def lease(first_member: int, quota: int, n_received: int = 0) -> Lease:
    return Lease(first_member, quota, n_received=n_received)


def test_what_no_lease_covers_is_a_hole() -> None:
    leases = [lease(40, 8), lease(8, 8), lease(24, 8)]
    assert holes_in(leases, 0, 64) == [(0, 8), (16, 8), (32, 8), (48, 16)]
    assert holes_in(leases, 12, 32) == [(16, 8)]
    assert holes_in([], 8, 24) == [(8, 16)]
    assert holes_in([lease(0, 64)], 0, 64) == []


def test_leases_beyond_the_end_and_without_members_cover_nothing() -> None:
    assert holes_in([lease(0, 0), lease(64, 8)], 0, 16) == [(0, 16)]
    assert holes_in([lease(16, 8)], 0, 16) == [(0, 16)]


def test_holes_are_cut_into_whole_groups_for_so_many() -> None:
    assert pieces([(0, 64)], 4, 8) == [(0, 16), (16, 16), (32, 16), (48, 16)]
    assert pieces([(0, 24)], 2, 8) == [(0, 16), (16, 8)]
    assert pieces([(0, 8), (32, 8)], 1, 8) == [(0, 8), (32, 8)]
    assert pieces([], 3, 8) == []
    assert pieces([(0, 16)], 0, 8) == [(0, 16)]


def volunteer(peer: int, **given: Any) -> Volunteer:  # noqa: ANN401 (fields of Volunteer)
    return Volunteer(peer, **{"phase": Phase.READY, **given})


def test_who_is_done_or_has_nothing_is_idle_and_the_fastest_comes_first() -> None:
    done, new = volunteer(1, lease=lease(0, 8, 8), members_per_s=1.0), volunteer(2, members_per_s=2.0)
    others = [
        volunteer(3, lease=lease(8, 8)),
        volunteer(4, phase=Phase.SYNCING),
        volunteer(5, cut_at=7),
        volunteer(6, reputation=Reputation("", benched_until=8)),
    ]
    assert idle([done, *others, new], 7) == [new, done]
    assert [v.volunteers[0].peer for v in idle(others, 8)] == [5, 6]

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.coordination.leases.sharing import share_groups, share_step
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Volunteer

SPEEDS = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=20)


@given(st.integers(0, 10_000), SPEEDS)
def test_shares_sum_to_the_limit_and_nobody_goes_empty(n_groups: int, speeds: list[float | None]) -> None:
    shares = share_groups(n_groups, speeds)
    assert len(shares) == len(speeds)
    assert min(shares) >= 1
    assert sum(shares) == max(n_groups, len(speeds))


@given(st.integers(0, 10_000), st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_a_faster_volunteer_never_gets_less(n_groups: int, speeds: list[float]) -> None:
    # Equal remainders may go either way, hence one group of difference.
    shares = share_groups(n_groups, sorted(speeds))
    assert all(faster >= slower - 1 for slower, faster in pairwise(shares))


def test_shares_are_in_proportion_to_speed() -> None:
    assert share_groups(103, [100.0, 300.0, 600.0]) == [11, 31, 61]


def test_unknown_speed_counts_like_the_slowest_known_one() -> None:
    assert share_groups(203, [100.0, None, 300.0]) == share_groups(203, [100.0, 100.0, 300.0])
    assert share_groups(12, [None, None, None]) == [4, 4, 4]


@pytest.mark.parametrize("speeds", [[0.0], [0.0, 0.0], [None, 0.0]])
def test_volunteers_that_sent_nothing_share_equally(speeds: list[float | None]) -> None:
    assert share_groups(8, speeds) == [8 // len(speeds)] * len(speeds)


def volunteer_of(peer: int, members_per_s: float, *, is_steady: bool = True) -> Volunteer:
    reputation = Reputation(f"{peer}", n_needed=not is_steady)
    return Volunteer(peer, members_per_s=members_per_s, reputation=reputation)


def shares_of(volunteers: list[Volunteer], **given: Any) -> list[tuple[int, int, bool]]:  # noqa: ANN401
    shares = share_step(volunteers, 80, **{"step": 0, "trusts": lambda _: True, **given})
    return [(share.party.volunteers[0].peer, share.n_groups, share.gates) for share in shares]


def test_whom_nobody_waits_for_is_asked_for_half_of_what_it_does_in_a_step() -> None:
    volunteers = [volunteer_of(1, 100.0), volunteer_of(2, 24.0, is_steady=False)]
    assert shares_of(volunteers, expected=0.5) == [(1, 80, True), (2, 6, False)]
    assert shares_of(volunteers, expected=0.01) == [(1, 80, True), (2, 1, False)]


def test_those_whom_nobody_waits_for_are_asked_for_an_eighth_together() -> None:
    volunteers = [volunteer_of(1, 100.0), *(volunteer_of(peer, 1e9, is_steady=False) for peer in (2, 3))]
    assert shares_of(volunteers, expected=0.5) == [(1, 80, True), (2, 5, False), (3, 5, False)]
    many = [volunteer_of(1, 100.0), *(volunteer_of(peer, 1e9, is_steady=False) for peer in range(2, 42))]
    assert {n_groups for _, n_groups, gates in shares_of(many, expected=0.5) if not gates} == {1}


def test_whoever_is_not_trusted_is_asked_for_a_group() -> None:
    volunteers = [volunteer_of(1, 100.0), volunteer_of(2, 1e9, is_steady=False)]
    shares = shares_of(volunteers, expected=0.5, trusts=lambda reputation: reputation.identity == "1")
    assert shares == [(1, 80, True), (2, 1, False)]


def test_volunteers_beyond_the_groups_take_turns() -> None:
    volunteers = [Volunteer(peer) for peer in range(5)]
    asked = [
        [share.party.volunteers[0].peer for share in share_step(volunteers, 2, step=step, trusts=lambda _: True)]
        for step in range(5)
    ]
    assert asked == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.coordination.roster import KEPT_BLOCKS, Phase, Volunteer, share_groups

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


def test_speed_forgets_half_of_what_it_was_with_each_measurement() -> None:
    volunteer = Volunteer(1)
    volunteer.measure(100, 0.5)
    assert volunteer.members_per_s == pytest.approx(200)
    volunteer.measure(0, 5.0)
    assert volunteer.members_per_s == pytest.approx(100)


def test_speed_of_a_step_without_duration_is_a_number() -> None:
    volunteer = Volunteer(1)
    volunteer.measure(64, 0.0)
    assert volunteer.members_per_s is not None
    assert 0 < volunteer.members_per_s < float("inf")


def test_updates_follow_the_weights() -> None:
    followers = [phase for phase in Phase if Volunteer(1, phase=phase).follows_updates]
    assert followers == [Phase.SYNCING, Phase.READY]


def test_only_the_last_blocks_count_as_held() -> None:
    volunteer = Volunteer(1)
    sent = [bytes([number]) for number in range(KEPT_BLOCKS + 1)]
    volunteer.blocks.extend(sent)
    assert list(volunteer.blocks) == sent[1:]

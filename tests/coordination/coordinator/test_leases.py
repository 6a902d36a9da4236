from itertools import pairwise

import msgspec
import pytest

from fedlearn.coordination.effects import AppendToJournal
from fedlearn.wire.messages import Assignment, Ready
from tests.coordination.coordinator.scene import (
    GROUP,
    LIMIT,
    STRATEGY,
    TIME_PER_STEP,
    Scene,
    digest_of,
    of,
    parted,
    sent,
)


def test_leases_are_private_whole_groups_that_sum_to_the_limit(scene: Scene) -> None:
    for peer in (1, 2, 3):
        scene.join(peer)
    scene.report(1)
    leases = sorted((a.first_member, a.quota) for a in scene.assignments.values())
    assert len(leases) == 3
    assert leases[0][0] == 0
    assert all(first + quota == following for (first, quota), (following, _) in pairwise(leases))
    assert sum(quota for _, quota in leases) == LIMIT
    assert all(quota % GROUP == 0 for _, quota in leases)


def test_shares_follow_measured_speed(pair: Scene) -> None:
    members_per_s = {1: 10.0, 2: 30.0}
    for _ in range(12):
        opened = pair.now
        done_after = {peer: pair.assignments[peer].quota / speed for peer, speed in members_per_s.items()}
        for peer in sorted(done_after, key=lambda peer: done_after[peer]):
            pair.now = opened + done_after[peer]
            pair.report(peer)
        pair.applied()
    assert pair.assignments[2].quota / pair.assignments[1].quota == pytest.approx(3, rel=0.3)


def test_population_follows_the_speed_but_not_below_its_limit() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    scene.join(1)
    populations = []
    for duration_s in (1 / 128, 1 / 4, 2.0, 0.0):
        populations.append(scene.assignments[1].quota)
        scene.now += duration_s
        scene.report(1)
        scene.applied()
    assert populations == [LIMIT, 160, 88, LIMIT]
    assert scene.assignments[1].quota == 1024


def test_population_follows_the_speed_of_all_volunteers_together() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    scene.join(1)
    scene.join(2)
    scene.now += 1 / 128
    scene.report(1)
    scene.applied()
    assert [scene.assignments[peer].quota for peer in (1, 2)] == [80, 80]
    scene.now += 1 / 64
    scene.report(1)
    scene.report(2)
    assert sum(scene.assignments[peer].quota for peer in (1, 2)) == 232


def test_volunteer_that_was_late_gets_an_eighth_on_top_that_nobody_waits_for(pair: Scene) -> None:
    pair.report(1, GROUP)
    pair.report(2)
    pair.wait(TIME_PER_STEP)
    pair.applied()
    assert [pair.assignments[peer].quota for peer in (1, 2)] == [LIMIT // 8, LIMIT]
    assert of(AppendToJournal, pair.report(2))  # although volunteer 1 has sent nothing
    pair.applied()


def test_late_volunteer_is_waited_for_again_once_it_was_in_time_and_twice_as_long_after_each_relapse(
    pair: Scene,
) -> None:
    in_time: list[int] = []
    for _ in range(4):
        pair.now += 1.0
        pair.report(2)
        pair.wait(TIME_PER_STEP)  # volunteer 1 keeps everybody waiting,
        pair.applied()
        pair.now += 1.0
        pair.report(2)
        pair.applied()  # and rests for a step
        n_steps = 0
        while pair.assignments[2].quota == LIMIT:  # what volunteer 1 does comes on top
            pair.now += 1.0
            pair.report(1)
            pair.report(2)
            pair.applied()
            n_steps += 1
            assert n_steps < 20
        in_time.append(n_steps)
    assert in_time == [1, 2, 4, 8]


def test_silent_volunteer_is_waited_for_once(pair: Scene) -> None:
    asked = []
    for step in range(2, 42):
        if pair.assignments[2].step == step - 1:
            asked.append(step)
        if not of(AppendToJournal, pair.report(1)):
            assert step == 2
            pair.wait(TIME_PER_STEP)
        pair.applied()
    assert [later - earlier for earlier, later in pairwise(asked)] == [2, 3, 5, 9, 17]


def test_volunteer_that_sends_again_rests_as_at_first(pair: Scene) -> None:
    for _ in range(3):
        pair.report(1)
        if not pair.is_applying:
            pair.wait(TIME_PER_STEP)  # volunteer 2 sends nothing,
        pair.applied()
        pair.report(1)  # rests for one step,
        pair.applied()
        assert pair.assignments[2].step == pair.step
        pair.report(2)  # and sends again
        pair.report(1)
        pair.applied()


def test_reputation_outlives_a_connection(pair: Scene) -> None:
    pair.report(2)
    pair.wait(TIME_PER_STEP)
    pair.applied()
    pair.drop(1)
    pair.greet(3, "volunteer 1")
    pair.say(3, Ready(pair.step, digest_of(pair.step)))
    pair.report(2)
    pair.applied()
    pair.report(2)
    pair.applied()
    assert (pair.assignments[3].quota, pair.assignments[2].quota) == (GROUP, LIMIT)


def test_volunteers_beyond_the_number_of_groups_take_turns() -> None:
    scene = Scene()
    n_groups = LIMIT // GROUP
    for peer in range(1, n_groups + 3):
        scene.join(peer)
    leased: set[int] = set()
    for _ in range(n_groups + 3):
        holders = [peer for peer, assignment in scene.assignments.items() if assignment.step == len(scene.journal)]
        assert sum(scene.assignments[peer].quota for peer in holders) <= LIMIT
        leased |= set(holders)
        for peer in holders:
            scene.report(peer)
        scene.applied()
    assert leased == set(range(1, n_groups + 3))


def test_volunteer_that_never_sent_anything_can_be_the_last_one_left(pair: Scene) -> None:
    pair.report(1)
    pair.wait(TIME_PER_STEP)
    pair.applied()  # volunteer 2 has a speed of 0 now
    assert sent(Assignment, pair.drop(1), peer=2)  # nobody else is there: it gets another chance
    pair.report(2)
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


def test_result_of_a_step_that_was_opened_anew_since_is_ignored(pair: Scene) -> None:
    """All that the step waited for left before they sent anything; somebody else's Result was on its way."""
    pair.report(1, GROUP)
    pair.report(2)
    pair.wait(TIME_PER_STEP)
    pair.applied()
    before = pair.assignments[1]
    pair.drop(2)
    after = pair.assignments[1]
    assert after is not before
    assert after.step == before.step
    assert parted(pair.report(1, GROUP, first_member=before.first_member)) == {}
    assert of(AppendToJournal, pair.report(1, after.quota, first_member=after.first_member))


def test_speed_of_a_machine_is_that_of_all_results_of_its_lease() -> None:
    scene = Scene()
    scene.join(1)
    scene.now += 2.0
    scene.report(1, GROUP, busy_s=0.5 * GROUP)
    (volunteer,) = scene.coordinator.roster.volunteers.values()
    assert volunteer.member_s == 0.5
    scene.now += 5.0
    scene.report(1, 2 * GROUP, busy_s=0.5 * 3 * GROUP, n_machines=2)
    assert volunteer.n_machines == 2
    assert volunteer.member_s == 0.75  # halfway from 0.5 to 1, since two machines worked side by side

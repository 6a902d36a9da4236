"""How long steps are open: until time is up, sooner, or until there is anything to close them with."""

import pytest

from fedlearn.coordination.effects import AppendToJournal
from fedlearn.coordination.steps.closing import STRETCH
from fedlearn.es.update import Update
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import GROUP, HALF, LIMIT, TIME_PER_STEP, Scene, of, sent

LATE = 2.5 * TIME_PER_STEP


@pytest.fixture
def slow() -> Scene:
    """A volunteer whose first group took longer than a step may, and the step after it."""
    scene = Scene()
    scene.join(1)
    scene.wait(LATE)
    scene.report(1, GROUP)
    scene.applied()
    return scene


def time_left(scene: Scene, peer: int = 1) -> float:
    """What the peer was told of the step at hand."""
    assert scene.assignments[peer].step == scene.step
    return scene.assignments[peer].time_left_s


def take_step(scene: Scene, seconds: float) -> None:
    """A step that is complete after some time."""
    scene.now += seconds
    scene.report(1)
    scene.applied()


def test_time_up_closes_a_step_with_what_is_in(pair: Scene) -> None:
    pair.report(1, 2 * GROUP)
    pair.report(2, GROUP)
    assert pair.wait(TIME_PER_STEP - 0.01) == []
    (update,) = sent(Update, pair.wait(0.01), peer=1)
    assert update.spans == ((0, 2 * GROUP), (HALF, GROUP))


def test_time_up_waits_for_the_servers_own_replica(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    pair.report(1, GROUP)
    assert pair.wait(2 * TIME_PER_STEP) == []
    assert [update.step for update in sent(Update, pair.applied(), peer=1)] == [2]


def test_steps_that_time_cuts_do_not_become_longer(pair: Scene) -> None:
    pair.report(1, GROUP)
    pair.now += TIME_PER_STEP + 0.01
    assert of(AppendToJournal, pair.report(2, GROUP))
    pair.applied()
    assert time_left(pair) == TIME_PER_STEP
    for _ in range(3):
        pair.report(1, GROUP)
        assert of(AppendToJournal, pair.wait(TIME_PER_STEP + 0.02))  # a tick is never quite in time
        pair.applied()
        assert time_left(pair) == TIME_PER_STEP


@pytest.mark.parametrize(("half_s", "open_s"), [(0.0, 0.1), (3.0, 6.0)])
def test_straggler_is_cut_soon_after_half_the_population_is_in(pair: Scene, half_s: float, open_s: float) -> None:
    pair.wait(half_s)
    pair.report(1)
    assert not pair.wait(open_s - half_s - 0.05)
    assert of(AppendToJournal, pair.wait(0.1))


def test_step_to_which_nothing_came_waits_for_its_first_result(pair: Scene) -> None:
    pair.greet(3)  # can't help, since it has no weights yet
    assert pair.wait(LATE) == []
    (update,) = sent(Update, pair.report(2, GROUP), peer=2)
    assert update.spans == ((HALF, GROUP),)
    assert update.elapsed_s == pytest.approx(1.0 + LATE)


def test_step_after_one_in_which_nobody_was_in_time_lasts_longer(slow: Scene) -> None:
    assert time_left(slow) == STRETCH * LATE
    slow.report(1, GROUP)
    assert slow.wait(STRETCH * LATE - 0.1) == []
    assert of(AppendToJournal, slow.wait(0.1))


def test_longer_steps_become_as_short_again_as_they_may_be(slow: Scene) -> None:
    take_step(slow, LATE)
    assert time_left(slow) == STRETCH * LATE
    take_step(slow, LATE / 2)
    assert time_left(slow) == STRETCH * LATE / 2
    take_step(slow, LATE)  # in time, if later than a quarter of it
    assert time_left(slow) == STRETCH * LATE / 2
    take_step(slow, 0.1)
    assert time_left(slow) == TIME_PER_STEP


def test_longer_steps_that_time_cuts_become_as_short_as_their_first_result_allows(slow: Scene) -> None:
    for first_s, longest_s in ((5.0, STRETCH * 5.0), (1.0, TIME_PER_STEP)):
        slow.now += first_s
        slow.report(1, GROUP)
        slow.wait(STRETCH * LATE)
        slow.applied()
        assert time_left(slow) == longest_s


def test_time_stretches_again_for_groups_that_are_later_still(slow: Scene) -> None:
    slow.wait(STRETCH * LATE + 1.0)
    slow.report(1, GROUP)
    slow.applied()
    assert time_left(slow) == STRETCH * (STRETCH * LATE + 1.0)


def test_step_to_which_nothing_came_opens_again_for_who_waits_without_a_lease(pair: Scene) -> None:
    pair.join(3)
    effects = pair.wait(TIME_PER_STEP)
    assert of(AppendToJournal, effects) == []
    again = sorted((a.first_member, a.quota, a.step) for a in sent(Assignment, effects))
    assert len(again) == 3
    assert again[0][0] == LIMIT
    assert sum(quota for _, quota, _ in again) == LIMIT
    assert {step for _, _, step in again} == {1}
    pair.report(1)
    pair.report(3)
    (update,) = sent(Update, pair.report(2), peer=1)
    assert update.spans == ((LIMIT, LIMIT),)
    pair.applied()
    assert min(a.first_member for a in pair.assignments.values()) == 0


def test_joiner_need_not_wait_for_the_deadline_of_an_overdue_step(pair: Scene) -> None:
    pair.wait(LATE)
    pair.join(3)
    assert len(sent(Assignment, pair.wait(0.02))) == 3


def test_step_that_opens_again_gives_more_time() -> None:
    """With more volunteers than groups somebody always waits, and groups that take long would never be done."""
    scene = Scene()
    for peer in range(1, LIMIT // GROUP + 3):
        scene.join(peer)
    take_step(scene, 1.0)
    again = sent(Assignment, scene.wait(TIME_PER_STEP))
    assert {(assignment.step, assignment.time_left_s) for assignment in again} == {(1, STRETCH * TIME_PER_STEP)}
    assert scene.wait(2 * TIME_PER_STEP) == []  # in which each of them takes its group
    holders = [peer for peer, assignment in scene.assignments.items() if assignment.step == 1]
    for peer in holders:
        scene.report(peer)
    assert scene.journal[1].spans == ((LIMIT, LIMIT),)

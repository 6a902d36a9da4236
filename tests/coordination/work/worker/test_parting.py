from typing import Literal

import pytest

from fedlearn.coordination.effects import Leave, Notice, Reply
from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.messages import MAX_REASON_LENGTH, Farewell, Goodbye, Message, Ready, Result, Resync
from tests.coordination.work.scene import DATA, WELCOME, Scene, assignment, digest_of, of, replies, snapshot, update


def test_resync_drops_the_trials_and_a_new_snapshot_takes_over(scene: Scene) -> None:
    scene.hear(assignment(4))
    assert "it drifted" in of(Notice, scene.hear(Resync("it drifted")))[0].text
    assert scene.compute(0.1) == []
    scene.hear(DATA, snapshot(9))
    scene.compute()
    assert replies(Ready, scene.compute()) == [Ready(9, digest_of(9))]
    scene.hear(assignment(9))
    assert replies(Result, scene.compute(0.1))[0].digest == digest_of(9)


@pytest.mark.parametrize(
    ("kind", "is_welcome_back", "is_refusal"),
    [("run_ended", False, False), ("refused", False, True), ("try_again", True, False)],
)
def test_farewell_says_whether_to_come_back(
    scene: Scene, kind: Literal["run_ended", "refused", "try_again"], is_welcome_back: bool, is_refusal: bool
) -> None:
    effects = scene.hear(Farewell(kind, "because"))
    assert effects == [Leave("because", is_welcome_back=is_welcome_back, is_refusal=is_refusal)]
    assert scene.stop() == []


def test_volunteer_who_leaves_says_goodbye(scene: Scene) -> None:
    scene.hear(assignment(4))
    leave = Leave("Ctrl-C", is_welcome_back=False, is_refusal=False)
    assert scene.stop() == [Reply(Goodbye("Ctrl-C")), leave]


def test_machine_that_can_not_do_what_the_run_asks_for_says_why(stranger: Scene) -> None:
    stranger.hear(WELCOME, DATA, snapshot(4))
    leave = Leave("kind: unknown", is_welcome_back=False, is_refusal=True)
    assert stranger.fail("kind: unknown") == [Reply(Goodbye("kind: unknown")), leave]
    assert stranger.stop() == []


def test_reason_of_any_length_and_content_becomes_a_goodbye(scene: Scene) -> None:
    reason = "two\nlines, \x1b[2J and " + "x" * MAX_REASON_LENGTH
    (goodbye,) = replies(Goodbye, scene.fail(reason))
    assert goodbye.reason == ("two lines,  [2J and " + "x" * MAX_REASON_LENGTH)[:MAX_REASON_LENGTH]


def test_machine_that_fails_after_a_farewell_just_goes(scene: Scene) -> None:
    scene.hear(update(4), Farewell("run_ended", "all steps are done"))
    assert [type(effect) for effect in scene.fail("step: expected 5, got 4")] == [Leave]


def test_last_updates_are_taken_before_the_volunteer_goes(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4), update(5))
    assert scene.hear(Farewell("run_ended", "all steps are done")) == []
    scene.compute()
    scene.compute()
    effects = scene.compute()
    assert [type(effect) for effect in effects] == [Leave]
    assert scene.worker.n_steps == 2


def test_snapshot_that_a_farewell_overtook_is_not_answered(stranger: Scene) -> None:
    stranger.hear(WELCOME, DATA, snapshot(4), Farewell("try_again", "the server restarts"))
    stranger.compute()
    stranger.compute()
    assert [type(effect) for effect in stranger.compute()] == [Leave]


def test_volunteer_may_leave_while_it_takes_the_last_updates(scene: Scene) -> None:
    scene.hear(update(4), Farewell("run_ended", "all steps are done"))
    assert [type(effect) for effect in scene.stop()] == [Leave]
    assert scene.compute() == []


@pytest.mark.parametrize("message", [snapshot(4), update(4), assignment(4)], ids=["Load", "Apply", "Evaluate"])
def test_nothing_is_answered_or_begun_after_goodbye(scene: Scene, message: Message) -> None:
    if isinstance(message, Snapshot):
        scene.hear(Resync("it drifted"))
    scene.hear(message, DATA)
    scene.stop()
    assert scene.worker.received(DATA, scene.now) == []  # was on its way
    assert scene.compute(0.1) == []
    assert scene.stop() == []

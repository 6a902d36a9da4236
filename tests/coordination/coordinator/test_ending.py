import msgspec
import numpy as np
import pytest

from fedlearn.coordination.effects import Dismiss, EndRun, RecordCredit, SaveCheckpoint, Send
from fedlearn.coordination.steps.divergence import PATIENCE
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.schedules import Schedule
from fedlearn.wire.messages import Assignment, Goodbye
from tests.coordination.coordinator.scene import GROUP, LIMIT, STRATEGY, TIME_PER_STEP, Scene, of, parted, sent


def test_run_idles_when_all_have_gone_and_the_next_joiner_takes_it_up(pair: Scene) -> None:
    pair.report(1, GROUP)
    pair.drop(1)
    pair.drop(2)
    assert [update.step for update in pair.journal] == [0, 1]
    pair.applied()
    assert pair.wait(10 * TIME_PER_STEP) == []
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert (assignment.step, assignment.first_member, assignment.quota) == (2, 0, LIMIT)


def test_step_that_all_left_before_the_first_result_is_opened_for_the_next_joiner(pair: Scene) -> None:
    pair.drop(1)
    pair.drop(2)
    assert pair.wait(10 * TIME_PER_STEP) == []
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert (assignment.step, assignment.quota) == (1, LIMIT)


def test_volunteers_may_all_leave_while_the_servers_replica_takes_a_step(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    pair.drop(1)
    pair.drop(2)
    assert len(of(StepReport, pair.applied())) == 1
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert assignment.step == 2


def test_run_ends_after_its_last_step_with_checkpoint_and_farewells() -> None:
    scene = Scene(steps=2)
    scene.join(1)
    scene.report(1)
    scene.applied()
    scene.join(2)
    scene.connect(4)
    effects = scene.report(1)
    assert sent(Assignment, effects) == []
    scene.greet(3)
    effects = scene.applied()
    farewell = ("run_ended", "all 2 steps are done")
    assert [type(e) for e in effects] == [
        StepReport,
        RecordCredit,
        Send,
        SaveCheckpoint,
        Dismiss,
        Dismiss,
        Dismiss,
        EndRun,
    ]
    assert parted(effects) == {1: farewell, 2: farewell, 3: farewell}
    assert effects[-1] == EndRun("all 2 steps are done")


def test_run_ends_with_the_step_in_which_its_time_is_over() -> None:
    scene = Scene(duration_s=5.0)
    scene.join(1)
    for seconds in (3.0, 1.5):
        scene.now += 100.0  # the run waits for its own replica, or for volunteers: no time of training
        scene.drop(1)
        scene.join(1)
        scene.now += seconds
        assert sent(Assignment, scene.report(1)) != []
        assert of(EndRun, scene.applied()) == []
    assert scene.coordinator.status(scene.now).run_left_s == 0.5
    scene.now += 0.5
    assert sent(Assignment, scene.report(1)) == []
    effects = scene.applied()
    assert [update.elapsed_s for update in scene.journal] == [3.0, 4.5, 5.0]
    assert parted(effects) == {1: ("run_ended", "the 5 s of training are over")}
    assert effects[-1] == EndRun("the 5 s of training are over")


def test_learning_rate_and_sigma_follow_the_schedules_of_the_run() -> None:
    schedule = Schedule(learning_rate="linear", sigma="linear", steps=4)
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, schedule=schedule), steps=4)
    scene.join(1)
    sigmas = []
    for _ in range(4):
        sigmas.append(scene.assignments[1].perturbation.sigma)
        scene.report(1)
        scene.applied()
    assert sigmas == pytest.approx([0.1, 0.0775, 0.055, 0.0325])
    assert [update.optimizer.learning_rate for update in scene.journal] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


def test_stop_gives_up_the_open_step(pair: Scene) -> None:
    pair.report(1)
    effects = pair.stop()
    assert [type(e) for e in effects] == [SaveCheckpoint, Dismiss, Dismiss, EndRun]
    assert set(parted(effects).values()) == {("try_again", "Ctrl-C")}


def test_stop_waits_for_the_update_under_way(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    assert pair.stop() == []
    effects = pair.applied()
    assert [type(e) for e in effects] == [
        StepReport,
        RecordCredit,
        Send,
        Send,
        SaveCheckpoint,
        Dismiss,
        Dismiss,
        EndRun,
    ]


def test_nothing_happens_after_the_end(pair: Scene) -> None:
    pair.report(1)
    pair.stop()
    assert pair.coordinator.received(2, Goodbye("bye"), pair.now) == []
    assert pair.drop(1) == []
    assert pair.wait(TIME_PER_STEP) == []
    assert pair.stop() == []


@pytest.mark.parametrize("step", [5, 6])
def test_run_that_was_complete_when_it_was_resumed_ends_at_once(step: int) -> None:
    scene = Scene(step=step, steps=5)
    assert scene.greet(1)
    effects = scene.wait(0.0)
    assert [type(e) for e in effects] == [SaveCheckpoint, Dismiss, EndRun]
    assert scene.wait(1.0) == []


def test_run_that_diverges_is_stopped_and_may_be_resumed() -> None:
    scene = Scene()
    scene.join(1)
    for _ in range(PATIENCE + 1):
        assert not of(EndRun, scene.effects)
        scene.report(1) if scene.step == 0 else scene.report(1, losses=np.full(LIMIT, 1e5, np.float32))
        last = scene.applied()
    (end,) = of(EndRun, last)
    assert end.reason.startswith("the run diverged: its loss was ")
    assert parted(last)[1] == ("try_again", end.reason)
    assert of(SaveCheckpoint, last)

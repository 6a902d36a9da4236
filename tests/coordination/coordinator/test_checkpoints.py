import math

from fedlearn.coordination.effects import SaveCheckpoint
from fedlearn.coordination.steps.plan import Status
from tests.coordination.coordinator.scene import CHECKPOINT_TIME, TIME_PER_STEP, Scene, of


def test_status_says_where_the_run_stands(pair: Scene) -> None:
    pair.greet(3)  # is not ready
    pair.now += 4.0
    status = pair.coordinator.status(pair.now)
    assert status == Status(step=1, volunteers=2, step_left_s=TIME_PER_STEP - 4.0, run_left_s=math.inf)
    assert pair.coordinator.status(pair.now + 100.0).step_left_s == 0.0
    assert Scene(step=9).coordinator.status(0.0).step_left_s == 0.0


def test_checkpoint_is_saved_when_it_is_due_and_due_again_after_its_time(scene: Scene) -> None:
    scene.join(1)
    saved = []
    for seconds in (CHECKPOINT_TIME - 1, 0.5, 1.0, CHECKPOINT_TIME - 1, 1.0):
        scene.now += seconds
        scene.report(1)
        assert not of(SaveCheckpoint, scene.effects[-6:])
        effects = scene.applied()
        saved.append(bool(of(SaveCheckpoint, effects)))
        scene.effects.clear()
    assert saved == [False, False, True, False, True]

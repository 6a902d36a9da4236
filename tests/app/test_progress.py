import numpy as np
import pytest

from fedlearn.app.progress import LINE_INTERVAL_S, Progress
from fedlearn.coordination.effects import Build, Evaluate, Load
from fedlearn.es.perturbation import Perturbation
from fedlearn.objectives.base import Trials
from fedlearn.wire.messages import Snapshot, Welcome

BUILD = Build(Welcome("3", 1, {}))
ZEROS = np.zeros(7, np.float32)
LOAD = Load(Snapshot(20, bytes(8), ZEROS, ZEROS, ZEROS, 1.0, 1.0))


def evaluation(n_members: int) -> Evaluate:
    return Evaluate(
        Trials(step=20, perturbation=Perturbation(0.1, 1), group_size=8, first_member=0, n_members=n_members),
        bytes(16),
    )


@pytest.fixture
def progress() -> Progress:
    progress = Progress()
    assert progress.performed(BUILD, n_steps=0, now=90.0) is None
    assert progress.performed(LOAD, n_steps=0, now=100.0) == "joined run 3 at step 20: 7 parameters"
    return progress


def test_joining_is_said_once(progress: Progress) -> None:
    assert progress.performed(LOAD, n_steps=0, now=101.0) is None


def test_steps_and_own_speed_are_said_every_now_and_then(progress: Progress) -> None:
    for now in np.arange(101.0, 100.0 + LINE_INTERVAL_S):
        assert progress.performed(evaluation(32), n_steps=4, now=now) is None
    line = progress.performed(evaluation(32), n_steps=5, now=100.0 + LINE_INTERVAL_S)
    assert line == "5 steps taken, 32 members/s of its own"
    assert progress.performed(evaluation(8), n_steps=5, now=101.0 + LINE_INTERVAL_S) is None
    line = progress.performed(evaluation(8), n_steps=6, now=100.0 + 2 * LINE_INTERVAL_S)
    assert line == "6 steps taken, 1.6 members/s of its own"

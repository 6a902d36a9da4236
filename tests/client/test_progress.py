import numpy as np
import pytest

from fedlearn.client.progress import LINE_INTERVAL_S, Progress, credit_in_words
from fedlearn.coordination.effects import Begin, Build, Compute, Evaluate, Load
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.trials import Trials
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import Credit, Start, Welcome

LAYOUT = ParameterLayout((TensorSpec("vector", (7,)),))
SNAPSHOT = genesis(LAYOUT, np.zeros(7, dtype=np.float32), step=20)
REPLICA = Replica(LAYOUT, SNAPSHOT, seed=1, row_masks=lambda _: None)
BUILD = Build(Welcome("3", Invitation("kind", 1, {}, {})))
LOAD, BEGIN = Load(SNAPSHOT), Begin(Start(SNAPSHOT.digest, 20, 25, keeps_start=False))


def evaluation(n_members: int) -> Evaluate:
    return Evaluate(
        Trials(step=20, perturbation=Perturbation(0.1, 1), group_size=8, first_member=0, n_members=n_members), bytes(16)
    )


@pytest.fixture(params=[LOAD, BEGIN], ids=["Load", "Begin"])
def progress(request: pytest.FixtureRequest) -> Progress:
    progress = Progress()
    assert progress.performed(BUILD, None, n_steps=0, now=90.0) is None
    compute: Compute = request.param
    assert progress.performed(compute, REPLICA, n_steps=0, now=100.0) == "joined run 3 at step 20: 7 parameters"
    return progress


def test_joining_is_said_once(progress: Progress) -> None:
    assert progress.performed(LOAD, REPLICA, n_steps=0, now=101.0) is None


def test_steps_and_own_speed_are_said_every_now_and_then(progress: Progress) -> None:
    for now in np.arange(101.0, 100.0 + LINE_INTERVAL_S):
        assert progress.performed(evaluation(32), REPLICA, n_steps=4, now=now) is None
    line = progress.performed(evaluation(32), REPLICA, n_steps=5, now=100.0 + LINE_INTERVAL_S)
    assert line == "5 steps taken, 32 members/s of its own"
    assert progress.performed(evaluation(8), REPLICA, n_steps=5, now=101.0 + LINE_INTERVAL_S) is None
    line = progress.performed(evaluation(8), REPLICA, n_steps=6, now=100.0 + 2 * LINE_INTERVAL_S)
    assert line == "6 steps taken, 1.6 members/s of its own"


def test_credit_is_said_with_the_steps(progress: Progress) -> None:
    line = progress.performed(LOAD, REPLICA, n_steps=5, now=100.0 + LINE_INTERVAL_S, credited="it has earned a lot")
    assert line == "5 steps taken, 0 members/s of its own; it has earned a lot"


def test_credit_is_said_in_a_lenders_words() -> None:
    said = "its identity is credited with 4.56M members, 18.2M trial-tokens and 5 min in all"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 0, 0), "tokens") == said
    checked = f"{said}; groups checked and right: 12"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 12, 0), "tokens") == checked
    caught = f"{checked}; results checked and false: 2"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 12, 2), "tokens") == caught


def test_the_greatest_credit_that_can_be_told_is_said() -> None:
    most = 2**63 - 1
    said = credit_in_words(Credit(most, most, most, most, most), "tokens")
    assert "9.22e+09G members" in said
    assert len(said) < 300

import numpy as np
import pytest

from fedlearn.app import history
from fedlearn.app import run as runs
from fedlearn.app.run import Run
from fedlearn.app.snapshots import snapshot_of
from fedlearn.app.trainer import Trainer
from fedlearn.config import RunConfig
from fedlearn.es.update import Update
from fedlearn.storage.checkpoint import load_checkpoint


@pytest.fixture
def run(config: RunConfig) -> Run:
    return runs.create(config)


def update_of(run: Run, step: int) -> Update:
    (block,) = run.blocks
    utilities = np.arange(-8, 8, dtype=np.int8)
    return Update(step, block, ((0, 16),), utilities, 1, 8, -0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 1.0)


@pytest.fixture
def digests(run: Run) -> list[bytes]:
    """Of the replica at steps 0 to 5, whose Updates are in the journal."""
    trainer, _ = Trainer.open(run)
    digests = [trainer.replica.digest]
    for step in range(5):
        trainer.append(update_of(run, step))
        digests.append(trainer.apply(update_of(run, step)))
    trainer.close()
    return digests


def test_replay_takes_every_step_of_the_journal_or_up_to_one(run: Run, digests: list[bytes]) -> None:
    replica, last = history.replay(run)
    assert (replica.step, replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4
    for step in range(5):
        replica, last = history.replay(run, until=step)
        assert (replica.step, replica.digest) == (step, digests[step])
        assert (last.step if last else -1) == step - 1


def test_replay_of_a_run_without_a_journal_is_its_genesis(run: Run) -> None:
    replica, last = history.replay(run)
    assert (replica.digest, last) == (load_checkpoint(run.folder.genesis).digest, None)


def test_journal_is_followed_from_where_the_replica_stands(run: Run, digests: list[bytes]) -> None:
    halfway = snapshot_of(history.replay(run, until=2)[0])
    replica, last = history.follow_journal(run, run.new_replica(halfway))
    assert (replica.step, replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4


def test_last_update_is_known_to_a_replica_at_the_journals_end(run: Run, digests: list[bytes]) -> None:
    replica, last = history.follow_journal(run, history.replay(run)[0])
    assert replica.digest == digests[5]
    assert last is not None
    assert last.step == 4

import pytest

from fedlearn.config import RunConfig
from fedlearn.server import history
from fedlearn.server.run import Run
from fedlearn.server.trainer import Trainer
from fedlearn.storage.checkpoint import load_checkpoint
from tests.runs import created, update_of


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


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
    for until in (None, *range(6)):
        step = 5 if until is None else until
        rebuilt = history.replay(run, until=until)
        assert (rebuilt.holding.replica.step, rebuilt.holding.replica.digest) == (step, digests[step])
        assert (rebuilt.last.step if rebuilt.last else -1) == step - 1
        assert (rebuilt.begun.step, rebuilt.problems) == (0, ())


def test_replay_of_a_run_without_a_journal_is_its_genesis(run: Run) -> None:
    rebuilt = history.replay(run)
    assert (rebuilt.holding.replica.digest, rebuilt.last) == (load_checkpoint(run.folder.genesis).digest, None)


def test_journal_is_followed_from_where_the_replica_stands(run: Run, digests: list[bytes]) -> None:
    holding, problems = history.replay(run, until=2).holding, list[str]()
    last = history.follow_journal(run, holding, problems=problems)
    assert problems == []
    assert (holding.replica.step, holding.replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4

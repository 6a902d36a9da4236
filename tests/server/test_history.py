import pytest

from fedlearn.config import ConfigError, RunConfig, to_json
from fedlearn.server import history
from fedlearn.server.run import Run
from fedlearn.server.trainer import Trainer
from fedlearn.storage.checkpoint import load_checkpoint
from tests.runs import created, reopened, update_of


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
    holding, last = history.replay(run)
    assert (holding.replica.step, holding.replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4
    for step in range(5):
        holding, last = history.replay(run, until=step)
        assert (holding.replica.step, holding.replica.digest) == (step, digests[step])
        assert (last.step if last else -1) == step - 1


def test_replay_of_a_run_without_a_journal_is_its_genesis(run: Run) -> None:
    holding, last = history.replay(run)
    assert (holding.replica.digest, last) == (load_checkpoint(run.folder.genesis).digest, None)


def test_journal_is_followed_from_where_the_replica_stands(run: Run, digests: list[bytes]) -> None:
    holding, _ = history.replay(run, until=2)
    last = history.follow_journal(run, holding)
    assert (holding.replica.step, holding.replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4


def test_last_update_is_known_to_a_replica_at_the_journals_end(run: Run, digests: list[bytes]) -> None:
    holding, _ = history.replay(run)
    last = history.follow_journal(run, holding)
    assert holding.replica.digest == digests[5]
    assert last is not None
    assert last.step == 4


@pytest.mark.parametrize(("key", "value"), [("seed", 2), ("hidden_size", 16), ("embedding_scale", 1.0), ("rank", 0)])
def test_origin_of_a_run_is_checked(run: Run, key: str, value: float) -> None:
    history.check_origin(reopened(run, step_num=3, learning_rate=0.5, steps=9))
    run.folder.config.write_text(to_json(run.config.replace({key: value})))
    with pytest.raises(ConfigError, match=f"{key}: expected {run.config.get(key)}, .* got {value} from .*config"):
        history.check_origin(reopened(run))

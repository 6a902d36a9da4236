import math
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from fedlearn.app import run as runs
from fedlearn.app.run import Run
from fedlearn.app.trainer import Trainer
from fedlearn.config import ConfigError, RunConfig, to_json
from fedlearn.coordination.effects import StepReport
from fedlearn.es.update import Update
from fedlearn.storage.checkpoint import KEPT_CHECKPOINTS, latest_checkpoint, load_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import read_journal
from fedlearn.storage.metrics import read_last_metrics


@pytest.fixture
def run(config: RunConfig) -> Run:
    return runs.create(config)


@pytest.fixture
def trainer(run: Run) -> Iterator[Trainer]:
    trainer, notices = Trainer.open(run)
    assert notices == []
    yield trainer
    trainer.close()


def update_of(run: Run, step: int) -> Update:
    (block,) = run.blocks
    utilities = np.arange(-8, 8, dtype=np.int8)
    return Update(step, block, ((0, 16),), utilities, 1, 8, -0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 2.5)


def take(trainer: Trainer, steps: range) -> None:
    for step in steps:
        trainer.append(update_of(trainer.run, step))
        trainer.apply(update_of(trainer.run, step))


def report(step: int, loss: float, digest: bytes) -> StepReport:
    return StepReport(step, loss, members=16, duration_s=0.5, volunteers=2, digest=digest)


def test_new_run_starts_at_genesis(run: Run, trainer: Trainer) -> None:
    assert trainer.replica.digest == load_checkpoint(run.folder.genesis).digest
    assert trainer.coordinator(0.0).status(0.0).step == 0


def test_update_is_in_the_journal_before_the_replica_takes_it(run: Run, trainer: Trainer) -> None:
    trainer.append(update_of(run, 0))
    assert [update.step for update in read_journal(run.folder.journal)] == [0]
    assert trainer.replica.step == 0
    digest = trainer.apply(update_of(run, 0))
    assert (trainer.replica.step, trainer.replica.digest) == (1, digest)


def test_update_out_of_turn_is_refused(run: Run, trainer: Trainer) -> None:
    trainer.append(update_of(run, 0))
    with pytest.raises(StorageError, match="expected the update of step 1, got 0"):
        trainer.append(update_of(run, 0))


def test_resumed_trainer_stands_where_the_journal_ends(run: Run, trainer: Trainer) -> None:
    take(trainer, range(3))
    trainer.save_checkpoint()
    take(trainer, range(3, 5))
    trainer.close()
    again, notices = Trainer.open(runs.load(run.folder))
    again.close()
    assert notices == []
    assert (again.replica.step, again.replica.digest) == (5, trainer.replica.digest)
    assert again.coordinator(0.0).status(0.0).step == 5


def test_checkpoint_says_where_the_run_stands(run: Run, trainer: Trainer) -> None:
    take(trainer, range(4))
    trainer.save_checkpoint()
    assert runs.load(run.folder).config == msgspec.structs.replace(run.config, step_num=4)
    snapshot, problems = latest_checkpoint(run.folder)
    assert problems == []
    assert (snapshot.step, snapshot.digest) == (4, trainer.replica.digest)
    assert run.new_replica(snapshot).digest == trainer.replica.digest


def test_last_checkpoints_are_kept(run: Run, trainer: Trainer) -> None:
    for step in range(KEPT_CHECKPOINTS + 2):
        take(trainer, range(step, step + 1))
        trainer.save_checkpoint()
    steps = sorted(int(path.stem) for path in run.folder.checkpoints.iterdir())
    assert steps == list(range(3, KEPT_CHECKPOINTS + 3))


def test_snapshot_for_a_joiner_is_the_replica_as_it_is(run: Run, trainer: Trainer) -> None:
    take(trainer, range(2))
    snapshot = trainer.snapshot()
    take(trainer, range(2, 3))
    assert snapshot.step == 2
    assert run.new_replica(snapshot).digest == snapshot.digest != trainer.replica.digest


def test_token_block_goes_by_its_name(run: Run, trainer: Trainer) -> None:
    (name,) = run.blocks
    block = trainer.token_block(name)
    assert block.block == name
    assert np.array_equal(block.tokens, run.dataset.train.tokens)


def test_metrics_of_a_step_are_written(run: Run, trainer: Trainer) -> None:
    trainer.validation_bits_per_character = 3.5
    trainer.record(report(0, math.log(2), b"digest 1"), bytes_in=1000, bytes_out=300)
    trainer.record(report(1, math.log(2), b"digest 2"), bytes_in=1700, bytes_out=500)
    first, second = read_last_metrics(run.folder.metrics, 2)
    assert (first.step, second.step, second.digest) == (0, 1, b"digest 2".hex())
    assert (first.members, first.volunteers) == (16, 2)
    assert first.loss == pytest.approx(math.log(2))
    assert first.bits_per_character == pytest.approx(1.0)
    assert first.trial_tokens_per_s == 16 * run.config.sequence_length / 0.5
    assert (first.bytes_in, first.bytes_out) == (1000, 300)
    assert (second.bytes_in, second.bytes_out) == (700, 200)
    assert (first.validation_bits_per_character, second.validation_bits_per_character) == (3.5, None)
    assert second.time >= first.time > 1.7e9


def test_step_without_a_finite_loss_has_none_in_the_metrics(run: Run, trainer: Trainer) -> None:
    metrics = trainer.record(report(0, math.nan, bytes(8)), bytes_in=0, bytes_out=0)
    assert (metrics.loss, metrics.bits_per_character) == (None, None)
    assert read_last_metrics(run.folder.metrics) == [metrics]


def test_run_without_any_readable_checkpoint_is_refused_with_its_path(run: Run) -> None:
    run.folder.genesis.write_bytes(b"")
    with pytest.raises(StorageError, match=r"genesis\.safetensors: expected a checkpoint"):
        Trainer.open(run)


def test_run_is_not_resumed_without_its_genesis(run: Run, trainer: Trainer) -> None:
    take(trainer, range(2))
    trainer.save_checkpoint()
    trainer.close()
    content = bytearray(run.folder.genesis.read_bytes())
    content[-1] ^= 1
    run.folder.genesis.write_bytes(content)
    with pytest.raises(StorageError, match=r"genesis\.safetensors: expected checksum"):
        Trainer.open(run)


@pytest.mark.parametrize(("key", "value"), [("seed", 2), ("hidden_size", 16), ("embedding_scale", 1.0), ("rank", 0)])
def test_run_is_not_resumed_with_other_settings_than_it_was_begun_with(run: Run, key: str, value: float) -> None:
    run.folder.config.write_text(to_json(msgspec.structs.replace(run.config, **{key: value})))
    with pytest.raises(ConfigError, match=f"{key}: expected {getattr(run.config, key)}, .* got {value} from .*config"):
        Trainer.open(runs.load(run.folder))


def test_run_is_not_resumed_without_the_text_of_its_last_step(run: Run, trainer: Trainer) -> None:
    take(trainer, range(2))
    trainer.save_checkpoint()
    trainer.close()
    (name,) = run.blocks
    other = msgspec.structs.replace(run, blocks={bytes(16): run.block(name)})
    with pytest.raises(StorageError, match=f"data: expected the token block {name.hex()}"):
        Trainer.open(other)

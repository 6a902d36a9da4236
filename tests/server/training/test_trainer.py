import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.config import RunConfig
from fedlearn.coordination.operator import RunOperator
from fedlearn.coordination.people.roster import KEPT_BLOCKS
from fedlearn.coordination.steps.report import StepReport
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.snapshot import Snapshot
from fedlearn.runs.run import Run, load_run_config
from fedlearn.server.training import trainer as trainer_module
from fedlearn.server.training.examination import Examination
from fedlearn.server.training.feed import Feed
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.checkpoint import (
    KEPT_CHECKPOINTS,
    checkpoints_in,
    latest_checkpoint,
    read_checkpoint,
    save_checkpoint,
    step_of,
)
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.journal import Journal, read_journal, read_records
from fedlearn.storage.journal.segment import read_places, segments_in
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepTraffic, read_last_metrics
from fedlearn.storage.logs.samples import Sample
from fedlearn.tasks.blocks import block_name, decode_block
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import DataBlock
from tests.coordination.coordinator.scene import STRATEGY
from tests.run_folders import bytes_of, created, fit_task, reopened, task_config, update_of
from tests.storage.journals import flip


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def trainer(run: Run) -> Iterator[Trainer]:
    trainer, notices = Trainer.open(run)
    assert notices == []
    yield trainer
    trainer.close()


def take(trainer: Trainer, steps: range) -> None:
    for step in steps:
        trainer.append(update_of(trainer.run, step))
        trainer.apply(update_of(trainer.run, step))


def report(step: int, loss: float | None) -> StepReport:
    return StepReport(step=step, loss=loss, members=16, duration_s=0.5, volunteers=2)


def test_new_run_starts_at_genesis(run: Run, trainer: Trainer) -> None:
    assert trainer.replica.digest == read_checkpoint(run.folder.genesis).snapshot.digest
    assert trainer.coordinator(0.0).status(0.0).step == 0
    assert trainer.elapsed_s == 0.0


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
    take(trainer, range(3, 4))
    last = update_of(run, 4, elapsed_s=2.5)
    trainer.append(last)
    trainer.apply(last)
    trainer.close()
    again, notices = Trainer.open(reopened(run))
    again.close()
    assert notices == []
    assert (again.replica.step, again.replica.digest) == (5, trainer.replica.digest)
    assert again.coordinator(0.0).status(0.0).step == 5
    assert again.elapsed_s == trainer.elapsed_s == 2.5


def test_checkpoint_says_where_the_run_stands(run: Run, trainer: Trainer) -> None:
    take(trainer, range(4))
    trainer.save_checkpoint()
    assert load_run_config(run.folder) == run.config.replace({"step_num": 4})
    checkpoint, problems = latest_checkpoint(run.folder)
    assert problems == {}
    assert (checkpoint.step, checkpoint.snapshot.digest) == (4, trainer.replica.digest)
    assert run.holding().load(checkpoint.snapshot) == trainer.replica.digest


def test_last_checkpoints_are_kept(run: Run, trainer: Trainer) -> None:
    for step in range(KEPT_CHECKPOINTS + 2):
        take(trainer, range(step, step + 1))
        trainer.save_checkpoint()
    steps = sorted(int(path.stem) for path in run.folder.checkpoints.iterdir())
    assert steps == list(range(3, KEPT_CHECKPOINTS + 3))


@pytest.mark.parametrize("may_replay", [False, True])
def test_joiner_who_can_not_make_the_start_is_sent_the_replica_as_it_is(
    run: Run, trainer: Trainer, may_replay: bool
) -> None:
    take(trainer, range(2))
    ((snapshot, parcel),) = trainer.weights_messages(may_replay=may_replay)
    take(trainer, range(2, 3))
    assert isinstance(snapshot, Snapshot)
    assert bytes_of(parcel) == bytes_of(pack(snapshot))
    assert snapshot.step == 2
    assert run.holding().load(snapshot) == snapshot.digest != trainer.replica.digest


def test_weights_are_encoded_once_a_step(trainer: Trainer) -> None:
    ((_, first),) = trainer.weights_messages(may_replay=False)
    ((_, again),) = trainer.weights_messages(may_replay=False)
    assert again is first
    take(trainer, range(1))
    ((snapshot, later),) = trainer.weights_messages(may_replay=False)
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.step, bytes_of(later)) == (1, bytes_of(pack(snapshot)))


def test_block_goes_by_its_name_and_is_encoded_once(run: Run, trainer: Trainer) -> None:
    ((name, columns),) = run.prepared.named_blocks.items()
    message, parcel = trainer.data_block(name)
    assert isinstance(message, DataBlock)
    assert bytes_of(parcel) == bytes_of(pack(message))
    assert message.block == name == block_name(decode_block(message.columns))
    assert np.array_equal(decode_block(message.columns)["tokens"], columns["tokens"])
    assert trainer.data_block(name)[1] is parcel


def test_blocks_in_turn_are_each_the_one_asked_for(config: RunConfig) -> None:
    run = created(config, new_tokens_interval=1, block_tokens=600)
    trainer, _ = Trainer.open(run)
    trainer.close()
    for name in [*run.prepared.named_blocks] * 2:
        message, parcel = trainer.data_block(name)
        assert isinstance(message, DataBlock)
        assert (message.block, bytes_of(parcel)) == (name, bytes_of(pack(message)))


def test_a_fed_trainer_opens_a_step_on_what_it_is_given_and_keeps_the_last_blocks(run: Run) -> None:
    trainer, _ = Trainer.open(run, feed=Feed())
    coordinator = trainer.coordinator(0.0)
    assert coordinator.loop.open_next(0.0) == []
    steps = OwnSteps(trainer._plan, STRATEGY, is_fed=True)
    operator = RunOperator(coordinator, steps)
    given = [{"x": np.arange(number + 1)} for number in range(3)]
    for columns in given:
        assert trainer.feed(operator, columns, 48, 0.0) == []  # nobody is there
        assert steps.block_of(0) == block_name(columns)
    assert steps._strategy.population_limit == 48
    for columns in given[-KEPT_BLOCKS:]:
        message, _ = trainer.data_block(block_name(columns))
        assert isinstance(message, DataBlock)
        assert decode_block(message.columns)["x"].tolist() == columns["x"].tolist()
    with pytest.raises(ValueError, match="expected one that is held here"):
        trainer.data_block(block_name(given[0]))
    trainer.close()


def test_metrics_of_a_step_are_written(run: Run, trainer: Trainer) -> None:
    trainer.validation = {"bits_per_character": 3.5}
    crossed = {"crew 1, cut 2": (8, 100, 0)}
    traffic = StepTraffic(bytes_in=1000, bytes_out=300, kinds={"losses": (900, 0)}, relayed=crossed)
    trainer.record(report(0, math.log(2)), traffic)
    digest = trainer.apply(update_of(run, 0))
    trainer.record(report(1, math.log(2)), StepTraffic(bytes_in=700, bytes_out=200))
    first, second = read_last_metrics(run.folder.metrics, 2)
    assert (first.step, second.step, second.digest) == (0, 1, digest.hex())
    assert (first.members, first.volunteers) == (16, 2)
    assert first.loss == pytest.approx(math.log(2))
    assert first.shown == {"bits_per_character": pytest.approx(1.0)}
    assert first.work_per_s == 16 * run.config.get("sequence_length") / 0.5
    assert (first.bytes_in, first.bytes_out) == (1000, 300)
    assert (first.kinds, first.relayed) == ({"losses": (900, 0)}, crossed)
    assert (second.bytes_in, second.bytes_out, second.kinds, second.relayed) == (700, 200, {}, {})
    assert (first.validation, second.validation) == ({"bits_per_character": 3.5}, {})
    assert (first.work, first.elapsed_s) == (16 * run.config.get("sequence_length"), 0.0)
    assert second.time >= first.time > 1.7e9


def test_metrics_have_the_variance_left_where_it_is_known(run: Run, trainer: Trainer) -> None:
    known = msgspec.structs.replace(report(0, 1.0), variance_left=0.008)
    for figures in (known, report(1, 1.0)):
        trainer.record(figures, StepTraffic())
    first, second = (json.loads(line) for line in run.folder.metrics.read_text().splitlines())
    assert first["variance_left"] == 0.008
    assert "variance_left" not in second


def test_volunteers_are_told_losses_as_the_owner_is_shown_them(
    run: Run, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock()
    monkeypatch.setattr(trainer_module, "Coordinator", made)
    trainer.coordinator(0.0)
    (plan, *_) = made.call_args.args
    assert plan.show(1.5) == run.prepared.examiner.show(1.5)
    assert plan.show(1.5)[0] == "bits_per_character"


def test_metrics_say_how_long_the_run_was_trained(run: Run, trainer: Trainer) -> None:
    update = update_of(run, 0, elapsed_s=7.5)
    trainer.append(update)
    trainer.apply(update)
    assert trainer.record(report(0, 1.0), StepTraffic()).elapsed_s == 7.5


def test_each_look_at_the_model_is_written_down(run: Run, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([Examination({"accuracy": 0.5}, "one\ntwo"), Examination({"accuracy": math.nan}, "\ud800")])
    monkeypatch.setattr(trainer_module, "examine", lambda *_: next(looks))
    trainer.examine(trainer.copy())
    take(trainer, range(2))
    trainer.examine(trainer.copy())
    first, second = read_lines(run.folder.samples, Sample)
    assert (first.step, first.figures, first.text) == (0, {"accuracy": 0.5}, "one\ntwo")
    assert (second.step, second.figures, second.text) == (2, {"accuracy": None}, "?")
    assert second.time >= first.time > 1.7e9


def test_work_of_a_task_is_counted_in_its_own_unit(tmp_path: Path) -> None:
    data = {"x": np.arange(10)}
    run = created(task_config(tmp_path), fit_task(loss=lambda *_: 0.0, data=data, batch_size=5))
    trainer, _ = Trainer.open(run)
    metrics = trainer.record(report(0, -2.5), StepTraffic())
    trainer.close()
    assert (metrics.loss, metrics.shown, metrics.work_per_s) == (-2.5, {"loss": -2.5}, 16 * 5 / 0.5)


def test_step_without_a_finite_loss_has_none_in_the_metrics(run: Run, trainer: Trainer) -> None:
    metrics = trainer.record(report(0, None), StepTraffic())
    assert (metrics.loss, metrics.shown) == (None, {})
    assert read_last_metrics(run.folder.metrics) == [metrics]


def test_run_without_any_readable_checkpoint_is_refused_with_its_path(run: Run) -> None:
    run.folder.genesis.write_bytes(b"")
    with pytest.raises(StorageError, match=r"genesis\.safetensors: expected a checkpoint"):
        Trainer.open(run)


def test_run_whose_genesis_is_damaged_goes_on_from_its_checkpoint(run: Run, trainer: Trainer) -> None:
    take(trainer, range(2))
    trainer.save_checkpoint()
    take(trainer, range(2, 3))
    trainer.close()
    content = bytearray(run.folder.genesis.read_bytes())
    content[-1] ^= 1
    run.folder.genesis.write_bytes(content)
    again, _ = Trainer.open(reopened(run))
    again.close()
    assert (again.replica.step, again.replica.digest) == (3, trainer.replica.digest)


def test_checkpoint_that_is_damaged_is_set_aside_and_told(run: Run, trainer: Trainer) -> None:
    for step in range(KEPT_CHECKPOINTS):
        take(trainer, range(step, step + 1))
        trainer.save_checkpoint()
    trainer.close()
    earlier, *damaged = checkpoints_in(run.folder)
    for path in damaged:
        path.write_bytes(b"")
    again, notices = Trainer.open(reopened(run))
    assert (again.replica.step, again.replica.digest) == (KEPT_CHECKPOINTS, trainer.replica.digest)
    assert [notice.startswith("checkpoint skipped: ") for notice in notices] == [True, True, False]
    assert notices[-1].startswith(f"set aside in {run.folder.path / 'set-aside/1'}: checkpoints/")
    take(again, range(KEPT_CHECKPOINTS, KEPT_CHECKPOINTS + 1))
    again.save_checkpoint()
    again.close()
    assert [step_of(path) for path in checkpoints_in(run.folder)] == [step_of(earlier), KEPT_CHECKPOINTS + 1]


def test_steps_behind_damage_are_set_aside_and_told(run: Run, trainer: Trainer) -> None:
    digests = [trainer.replica.digest]
    for step in range(6):
        take(trainer, range(step, step + 1))
        digests.append(trainer.replica.digest)
    trainer.close()
    (segment,) = segments_in(run.folder.journal)
    flip(segment, [*read_places(segment)][3].begin + 20)
    content = segment.read_bytes()
    again, notices = Trainer.open(reopened(run))
    assert (again.replica.step, again.replica.digest) == (3, digests[3])
    assert f"set aside in {run.folder.path / 'set-aside/1'}: journal/{segment.name}" in notices
    assert (run.folder.path / "set-aside/1/journal" / segment.name).read_bytes() == content
    take(again, range(3, 6))
    again.close()
    later, notices = Trainer.open(reopened(run))
    later.close()
    assert (later.replica.digest, notices) == (digests[6], [])


def test_journal_is_kept_in_its_bound_as_checkpoints_are_saved(config: RunConfig) -> None:
    run = created(config, keep_journal="16KB")
    trainer, _ = Trainer.open(run)
    for step in range(300):
        take(trainer, range(step, step + 1))
        if step % 10 == 9:
            trainer.save_checkpoint()
    trainer.close()
    oldest = step_of(checkpoints_in(run.folder)[0])
    segments = segments_in(run.folder.journal)
    assert 12_000 < sum(path.stat().st_size for path in segments) < 20_000
    assert 0 < int(segments[0].name) <= oldest
    again, notices = Trainer.open(reopened(run))
    again.close()
    assert (again.replica.digest, notices) == (trainer.replica.digest, [])


def test_all_of_the_journal_is_kept_where_that_is_asked_for(config: RunConfig) -> None:
    run = created(config, keep_journal="all")
    trainer, _ = Trainer.open(run)
    take(trainer, range(100))
    trainer.save_checkpoint()
    trainer.close()
    assert [update.step for update in read_journal(run.folder.journal)] == list(range(100))


def test_no_checkpoint_is_ahead_of_the_journal_on_the_disk(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, save = Journal.sync, save_checkpoint

    def synced(journal: Journal) -> None:
        order.append("journal")
        sync(journal)

    def saved(*arguments: Any) -> Path:  # noqa: ANN401 (those of save_checkpoint)
        order.append("checkpoint")
        return save(*arguments)

    monkeypatch.setattr(Journal, "sync", synced)
    monkeypatch.setattr(trainer_module, "save_checkpoint", saved)
    take(trainer, range(1))
    trainer.save_checkpoint()
    assert order == ["journal", "checkpoint"]


def test_record_of_a_step_has_the_digest_before_it(run: Run, trainer: Trainer) -> None:
    digests = []
    for step in range(3):
        digests.append(trainer.replica.digest)
        take(trainer, range(step, step + 1))
    assert [record.digest for record in read_records(run.folder.journal)] == digests
    with pytest.raises(AssertionError):
        trainer.append(update_of(run, 4))


def test_metrics_that_can_not_be_written_are_told(run: Run, trainer: Trainer) -> None:
    run.folder.metrics.mkdir()
    with pytest.raises(StorageError, match=r"metrics\.jsonl: a line could not be written: Is a directory; make room"):
        trainer.record(report(0, 1.0), StepTraffic())

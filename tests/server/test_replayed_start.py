"""What a joiner is sent: the start that it has itself, with the steps since, where those are fewer bytes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.people.roster import Held
from fedlearn.es.attempts import Attempt, Move
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.es.update import Update
from fedlearn.runs.run import Run
from fedlearn.server.training.recent import Outgoing
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.checkpoint import read_checkpoint
from fedlearn.storage.journal.segment import HEADER_BYTES, read_places, segments_in
from fedlearn.tasks.blocks import cut
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.user import task_kind
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import Start
from tests.run_folders import bytes_of, created, fit_task, task_config, update_of
from tests.storage.journals import flip

WIDE = {"vector": np.zeros(6), "wide": np.zeros(1000)}

TrainerOf = Callable[..., Trainer]


@pytest.fixture
def trainer_of(tmp_path: Path) -> Iterator[TrainerOf]:
    """Opens the trainer of a new run of a task; the test's end closes it."""
    trainers = []

    def opened(task: NamedTask, **settings: Any) -> Trainer:  # noqa: ANN401 (values of any setting)
        trainer, _ = Trainer.open(created(task_config(tmp_path), task, **settings))
        trainers.append(trainer)
        return trainer

    yield opened
    for trainer in trainers:
        trainer.close()


def take(trainer: Trainer, steps: range) -> None:
    for step in steps:
        trainer.append(update_of(trainer.run, step))
        trainer.apply(update_of(trainer.run, step))


def kinds(outgoing: list[Outgoing]) -> list[type]:
    return [type(message) for message, _ in outgoing]


def rebuilt(run: Run, outgoing: list[Outgoing], holding: Holding | None = None) -> bytes:
    """Digest of who begins at the Start and takes the Updates."""
    (start, _), *updates = outgoing
    assert isinstance(start, Start)
    holding = holding or run.holding()
    digest = holding.begin(start.first_step, keeps_start=start.keeps_start)
    assert digest == start.digest
    for update, _ in updates:
        assert isinstance(update, Update)
        digest = holding.apply(update)
    assert holding.replica.step == start.step
    return digest


@pytest.mark.parametrize("settings", [{}, {"step_num": 4}, {"weight_decay_towards": "start"}, {"restarts": 1}], ids=str)
def test_start_and_updates_lead_to_the_servers_weights(trainer_of: TrainerOf, settings: dict[str, Any]) -> None:
    trainer = trainer_of(fit_task(start=WIDE), **settings)
    begun = trainer.run.config.run.step_num
    genesis = read_checkpoint(trainer.run.folder.genesis).snapshot
    keeps_start = bool({"weight_decay_towards", "restarts"} & set(settings))
    (start, parcel), *none = trainer.weights_messages(may_replay=True)
    assert start == Start(genesis.digest, begun, begun, keeps_start)
    assert bytes_of(parcel) == bytes_of(pack(start))
    assert none == []
    take(trainer, range(begun, begun + 3))
    outgoing = trainer.weights_messages(may_replay=True)
    assert outgoing[0][0] == Start(genesis.digest, begun, begun + 3, keeps_start)
    assert kinds(outgoing[1:]) == [Update] * 3
    assert rebuilt(trainer.run, outgoing) == trainer.replica.digest


def test_who_comes_after_a_run_has_settled_begins_with_first_weights_too(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE), restarts=1)
    moves: tuple[Move, ...] = ("on", "settle", "on")
    for step, move in enumerate(moves):
        attempt = Attempt(1, 0, move=move)
        update = msgspec.structs.replace(update_of(trainer.run, step), attempt=attempt)
        trainer.append(update)
        trainer.apply(update)
    assert START not in trainer.replica.slots
    assert rebuilt(trainer.run, trainer.weights_messages(may_replay=True)) == trainer.replica.digest


def test_resumed_server_sends_the_start_too(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    take(trainer, range(2))
    trainer.save_checkpoint()
    trainer.close()
    again, _ = Trainer.open(trainer.run)
    again.close()
    assert rebuilt(again.run, again.weights_messages(may_replay=True)) == again.replica.digest


def test_step_that_is_in_the_journal_but_not_taken_yet_is_left_out(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    take(trainer, range(2))
    trainer.append(update_of(trainer.run, 2))
    outgoing = trainer.weights_messages(may_replay=True)
    assert kinds(outgoing) == [Start, Update, Update]
    assert rebuilt(trainer.run, outgoing) == trainer.replica.digest


def test_weights_are_sent_to_who_may_not_begin_anew(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    assert kinds(trainer.weights_messages(may_replay=False)) == [Snapshot]


def test_weights_are_sent_once_the_journal_is_longer_than_they_are(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    snapshot_bytes = 3 * trainer.replica.weights.nbytes  # with both moments of Adam
    is_replayed = []
    for step in range(120):
        take(trainer, range(step, step + 1))
        (segment,) = segments_in(trainer.run.folder.journal)
        is_short = segment.stat().st_size - HEADER_BYTES < snapshot_bytes
        assert kinds(trainer.weights_messages(may_replay=True))[0] is (Start if is_short else Snapshot)
        is_replayed.append(is_short)
    assert is_replayed[0]
    assert not is_replayed[-1]


@pytest.fixture
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts data of 64 rows into two blocks."""
    monkeypatch.setattr(task_kind, "cut", lambda columns: cut(columns, columns["x"].nbytes // 2))


def reading_task(*, reads: bool) -> NamedTask:
    """A task with data, whose rows are those of a tensor if `reads`."""
    task = fit_task(loss=lambda *_: 0.0, start={"rows": np.zeros((64, 30))}, data={"x": np.arange(64)})
    task.task.reads = {"rows": "x"} if reads else {}
    return task


def test_steps_are_replayed_where_row_masks_follow_from_one_block(trainer_of: TrainerOf) -> None:
    assert kinds(trainer_of(reading_task(reads=True)).weights_messages(may_replay=True)) == [Start]


@pytest.mark.usefixtures("several_blocks")
@pytest.mark.parametrize(("reads", "sent"), [(True, [Snapshot]), (False, [Start])])
def test_weights_are_sent_where_row_masks_follow_from_several_blocks(
    trainer_of: TrainerOf, reads: bool, sent: list[type]
) -> None:
    assert kinds(trainer_of(reading_task(reads=reads)).weights_messages(may_replay=True)) == sent


def test_weights_are_sent_once_the_journal_does_not_reach_back_to_the_start(trainer_of: TrainerOf) -> None:
    wide = {"vector": np.zeros(6), "wide": np.zeros(100_000)}
    trainer = trainer_of(fit_task(start=wide), keep_journal="16KB")
    for step in range(0, 120, 10):
        take(trainer, range(step, step + 10))
        assert kinds(trainer.weights_messages(may_replay=True)) == [Start] + [Update] * (step + 10)
    trainer.save_checkpoint()
    assert kinds(trainer.weights_messages(may_replay=True)) == [Snapshot]


def test_weights_are_sent_where_the_journal_is_damaged(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    take(trainer, range(5))
    (segment,) = segments_in(trainer.run.folder.journal)
    flip(segment, [*read_places(segment)][-1].begin + 20)
    assert kinds(trainer.weights_messages(may_replay=True)) == [Snapshot]
    flip(segment, [*read_places(segment)][2].begin + 20)
    assert kinds(trainer.weights_messages(may_replay=True)) == [Snapshot]


def test_whoever_held_the_weights_is_sent_what_it_missed(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE), weight_decay_towards="start")
    take(trainer, range(2))
    held = Held(2, trainer.replica.digest)
    assert trainer.missed(held) == [(Start(held.digest, 2, 2, True), ANY)]
    take(trainer, range(2, 5))
    outgoing = trainer.missed(held)
    assert outgoing is not None
    assert outgoing[0][0] == Start(held.digest, 2, 5, True)
    assert bytes_of(outgoing[0][1]) == bytes_of(pack(outgoing[0][0]))
    assert [message.step for message, _ in outgoing[1:] if isinstance(message, Update)] == [2, 3, 4]


def test_whoever_held_other_weights_did_not_miss_updates_but_weights(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    take(trainer, range(3))
    assert [trainer.missed(Held(step, b"otherwis")) for step in (0, 2, 3, 4)] == [None] * 4


def test_whoever_missed_more_bytes_than_weights_have_is_sent_those(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(fit_task(start=WIDE))
    held, n_missed = Held(0, trainer.replica.digest), 0
    sizes = []
    while (outgoing := trainer.missed(held)) is not None:
        sizes.append(sum(parcel.length_bytes for _, parcel in outgoing[1:]))
        take(trainer, range(n_missed, n_missed + 1))
        n_missed += 1
    assert sizes[-1] < trainer.snapshot_bytes <= sizes[-1] + sizes[1]


@pytest.mark.usefixtures("several_blocks")
def test_whoever_missed_steps_whose_row_masks_follow_from_other_blocks_is_sent_the_weights(
    trainer_of: TrainerOf,
) -> None:
    for reads in (True, False):
        trainer = trainer_of(reading_task(reads=reads))
        assert (trainer.missed(Held(0, trainer.replica.digest)) is None) == reads


@pytest.mark.usefixtures("several_blocks")
def test_a_replayed_step_needs_no_block_where_no_row_is_masked(trainer_of: TrainerOf) -> None:
    trainer = trainer_of(reading_task(reads=False))
    take(trainer, range(3))
    without_blocks = Holding(trainer.run.prepared.objective, seed=trainer.run.config.run.seed)
    outgoing = trainer.weights_messages(may_replay=True)
    assert rebuilt(trainer.run, outgoing, without_blocks) == trainer.replica.digest

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
import pytest

from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    Broadcast,
    Dismiss,
    EndRun,
    Notice,
    Peer,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.runs.run import Run
from fedlearn.server.performer import ServerPerformer
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.kept import Kept
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import DataBlock, Farewell, Message, Pong, Resync, Start
from tests.run_folders import bytes_of, created, fit_task, task_config, update_of

T = TypeVar("T")

FAREWELL = Farewell("try_again", "the server restarts")


@final
class Coordinator:
    """Says what it was told, and wants what it is given."""

    def __init__(self) -> None:
        self.crews = None
        self.told: list[object] = []
        self.wants: list[ServerEffect] = []

    def applied(self, digest: bytes, now: float) -> list[ServerEffect]:
        self.told.append((digest, now))
        return self.wants

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        self.told.append((peer, reason, now))
        return self.wants


@final
class Shell:
    """Keeps what it is asked for; work is done when told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[Peer, Message, Parcel | None]] = []
        self.steps: list[StepMetrics] = []
        self.reason: str | None = None
        self.bytes_in_and_out = (0, 0)
        self.bytes_by_kind: dict[str, tuple[int, int]] = {}
        self._works: deque[Callable[[], None]] = deque()

    def now(self) -> float:
        return 12.0

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        self.sent.append((peer, message, parcel))

    def traffic(self) -> tuple[int, int]:
        return self.bytes_in_and_out

    def traffic_by_kind(self) -> dict[str, tuple[int, int]]:
        return self.bytes_by_kind

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self._works.append(lambda: then(task()))

    def stepped(self, metrics: StepMetrics) -> None:
        self.steps.append(metrics)

    def ended(self, reason: str) -> None:
        self.reason = reason

    def do_work(self) -> int:
        """All that waits, in order; gives how much it was."""
        n_works = 0
        while self._works:
            self._works.popleft()()
            n_works += 1
        return n_works

    def kinds(self, peer: Peer) -> list[type]:
        """What was sent to a peer."""
        return [type(message) for to, message, _ in self.sent if to == peer]


@final
class Scene:
    """A performer of a run, between a coordinator and a shell that do as they are told."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.trainer, _ = Trainer.open(run)
        self.shell, self.coordinator, self.told = Shell(), Coordinator(), Kept()
        stand_in: Any = self.coordinator
        self.performer = ServerPerformer(self.trainer, stand_in, self.shell, self.told)

    def perform(self, *effects: ServerEffect) -> None:
        self.performer.perform(effects)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    task = fit_task(loss=lambda *_: 0.0, start={"wide": np.zeros(1000)}, data={"x": np.arange(10)})
    scene = Scene(created(task_config(tmp_path), task))
    yield scene
    scene.trainer.close()


def test_message_does_not_overtake_the_weights_before_it(scene: Scene) -> None:
    (block,) = scene.run.prepared.named_blocks
    update = update_of(scene.run, 0)
    scene.perform(SendWeights(1, may_replay=False), Send(1, update), SendBlock(1, block))
    assert scene.shell.sent == []
    scene.shell.do_work()
    assert scene.shell.kinds(1) == [Snapshot, Update, DataBlock]
    scene.perform(Send(1, Pong()))
    assert scene.shell.kinds(1)[3:] == [Pong]


def test_others_do_not_wait_for_somebodys_weights(scene: Scene) -> None:
    scene.perform(SendWeights(1, may_replay=False), Send(2, Pong()))
    assert scene.shell.kinds(2) == [Pong]
    scene.perform(SendWeights(3, may_replay=False))
    scene.shell.do_work()
    assert (scene.shell.kinds(1), scene.shell.kinds(3)) == ([Snapshot], [Snapshot])


def test_start_and_its_updates_come_before_what_waits(scene: Scene) -> None:
    scene.trainer.append(update_of(scene.run, 0))
    scene.trainer.apply(update_of(scene.run, 0))
    scene.perform(SendWeights(1, may_replay=True), Send(1, update_of(scene.run, 1)))
    scene.shell.do_work()
    assert scene.shell.kinds(1) == [Start, Update, Update]
    assert [message.step for _, message, _ in scene.shell.sent if isinstance(message, Update)] == [0, 1]


def test_parting_word_takes_the_place_of_weights_and_of_what_waits_behind_them(scene: Scene) -> None:
    scene.perform(SendWeights(1, may_replay=False), Send(1, update_of(scene.run, 0)), Dismiss(1, FAREWELL))
    assert scene.shell.sent == [(1, FAREWELL, None)]
    scene.shell.do_work()
    assert scene.shell.sent == [(1, FAREWELL, None)]


def test_peer_that_left_gets_nothing_more(scene: Scene) -> None:
    scene.perform(SendWeights(1, may_replay=False), Send(1, update_of(scene.run, 0)))
    scene.coordinator.wants = [Notice("it left")]
    scene.performer.disconnected(1, "the line broke")
    scene.shell.do_work()
    assert scene.shell.sent == []
    assert scene.coordinator.told == [(1, "the line broke", 12.0)]
    assert scene.told.notices == ["it left"]


def test_weights_that_are_asked_for_anew_are_sent_once(scene: Scene) -> None:
    scene.perform(SendWeights(1, may_replay=True), Send(1, Resync("drifted")), SendWeights(1, may_replay=False))
    scene.perform(Send(1, Pong()))
    scene.shell.do_work()
    assert scene.shell.kinds(1) == [Snapshot, Pong]


def test_weights_are_those_of_the_step_at_which_they_were_asked_for(scene: Scene) -> None:
    updates = [update_of(scene.run, step) for step in range(2)]
    scene.perform(SendWeights(1, may_replay=False), AppendToJournal(updates[0]), Send(1, updates[0]))
    scene.perform(ApplyUpdate(updates[0]), SendWeights(2, may_replay=False))
    scene.shell.do_work()
    steps = [(peer, message.step) for peer, message, _ in scene.shell.sent if isinstance(message, Snapshot)]
    assert steps == [(1, 0), (2, 1)]


def test_work_is_done_in_order_and_the_end_comes_last(scene: Scene) -> None:
    update = update_of(scene.run, 0)
    scene.perform(AppendToJournal(update), ApplyUpdate(update), SaveCheckpoint(), EndRun("all is done"))
    assert [taken.step for taken in read_journal(scene.run.folder.journal)] == [0]
    assert (scene.trainer.replica.step, scene.shell.reason) == (0, None)
    assert scene.shell.do_work() == 3
    assert scene.coordinator.told == [(scene.trainer.replica.digest, 12.0)]
    assert [path.stem for path in scene.run.folder.checkpoints.iterdir()] == ["000000000001"]
    assert scene.shell.reason == "all is done"


def test_effects_that_work_leads_to_are_performed(scene: Scene) -> None:
    update = update_of(scene.run, 0)
    scene.coordinator.wants = [Notice("applied"), Send(1, Pong())]
    scene.perform(AppendToJournal(update), ApplyUpdate(update))
    scene.shell.do_work()
    assert scene.told.notices == ["applied"]
    assert scene.shell.kinds(1) == [Pong]


def test_effects_that_an_effect_leads_to_at_once_come_after_those_that_were_given_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.shell, "work", lambda task, then: then(task()))
    scene.coordinator.wants = [Notice("applied")]
    update = update_of(scene.run, 0)
    scene.perform(AppendToJournal(update), ApplyUpdate(update), Notice("given with it"))
    assert scene.told.notices == ["given with it", "applied"]


def test_bytes_of_a_step_are_those_from_one_close_to_the_next(scene: Scene) -> None:
    closes = [((1000, 200), {"losses": (900, 0)}), ((5000, 4000), {"losses": (900, 0), "updates": (0, 3000)})]
    for step, (scene.shell.bytes_in_and_out, scene.shell.bytes_by_kind) in enumerate(closes):
        update = update_of(scene.run, step)
        scene.perform(AppendToJournal(update), ApplyUpdate(update))
        scene.shell.bytes_in_and_out, scene.shell.bytes_by_kind = (9000, 9000), {"losses": (9000, 9000)}
        scene.shell.do_work()
        scene.perform(StepReport(step=step, loss=1.0, members=16, duration_s=0.5, volunteers=2))
    first, second = scene.shell.steps
    assert (first.bytes_in, first.bytes_out, first.kinds) == (1000, 200, {"losses": (900, 0)})
    assert (second.bytes_in, second.bytes_out, second.kinds) == (4000, 3800, {"updates": (0, 3000)})


def test_messages_that_many_are_sent_are_encoded_once(scene: Scene) -> None:
    ((name, _),) = scene.run.prepared.named_blocks.items()
    updates = [update_of(scene.run, step) for step in range(2)]
    for update in updates:
        scene.perform(Broadcast((1, 2), update))
    scene.perform(SendBlock(1, name), SendBlock(2, name))
    scene.perform(SendWeights(1, may_replay=False), SendWeights(2, may_replay=False))
    scene.shell.do_work()
    ones, twos = ([parcel for to, _, parcel in scene.shell.sent if to == peer] for peer in (1, 2))
    assert len(ones) == 4
    assert all(one is two is not None for one, two in zip(ones, twos, strict=True))
    assert [bytes_of(parcel) for parcel in ones[:2] if parcel] == [bytes_of(pack(update)) for update in updates]


def test_whoever_comes_back_is_sent_what_it_missed_at_once(scene: Scene) -> None:
    held = Held(0, scene.trainer.replica.digest)
    update = update_of(scene.run, 0)
    scene.perform(AppendToJournal(update), Broadcast((2,), update))
    scene.trainer.apply(update)
    scene.perform(SendWeights(1, may_replay=False, held=held), Send(1, Pong()))
    assert scene.shell.kinds(1) == [Start, Update, Pong]
    ((_, _, ones),) = [sent for sent in scene.shell.sent if sent[0] == 1 and isinstance(sent[1], Update)]
    ((_, _, twos),) = [sent for sent in scene.shell.sent if sent[0] == 2]
    assert ones is twos is not None
    scene.perform(SendWeights(3, may_replay=False, held=Held(0, b"otherwis")))
    scene.shell.do_work()
    assert scene.shell.kinds(3) == [Snapshot]

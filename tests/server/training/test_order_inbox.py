import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, final

import msgspec
import numpy as np
import pytest

from fedlearn.config import ConfigError
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import EndRun, Notice, SaveCheckpoint, ServerEffect
from fedlearn.coordination.operator import RunOperator
from fedlearn.coordination.steps.step_loop import StepLoop
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.server.training.feed import Feed
from fedlearn.server.training.order_inbox import INTERVAL_S, OrderInbox
from fedlearn.storage.orders import (
    Answer,
    Finish,
    GoOn,
    Order,
    OrderFile,
    Pause,
    SendAway,
    Set,
    Stop,
    WriteCheckpoint,
    answer_to,
    give,
    withdraw,
)
from fedlearn.tasks.blocks import Columns
from tests.coordination.coordinator.scene import PLAN, STRATEGY, digest_of

T = TypeVar("T")


@final
class Office:
    step = 7

    def change(self, operator: RunOperator, key: str, text: str, now: float) -> str:
        if key != "sigma":
            raise ConfigError(f"{key}: expected sigma")
        operator.change(PLAN, STRATEGY, now)
        return f"{key}: {text}, it was 1"

    def finish(self, operator: RunOperator, end: int, more: int | None, now: float) -> int:
        last = end + (5 if more is None else more)
        operator.change(msgspec.structs.replace(PLAN, steps=last), STRATEGY, now)
        return last

    def feed(self, operator: RunOperator, columns: Columns, n_members: int, now: float) -> list[ServerEffect]:
        del operator, now
        return [Notice(f"{n_members} members on {', '.join(columns)}")]


@final
class Scene:
    """A order_inbox whose shell does work when it is told to."""

    def __init__(self, folder: Path, *, step: int = 7) -> None:
        self.folder, self.office = folder, Office()
        steps = OwnSteps(PLAN, STRATEGY)
        self.coordinator = Coordinator(PLAN, steps, step=step, last=None, digest=digest_of(step), now=0.0)
        self.operator = RunOperator(self.coordinator, steps)
        self.said: list[str] = []
        self.effects: list[ServerEffect] = []
        self.waiting: deque[Callable[[], None]] = deque()
        self.time = 0.0
        self.order_inbox = OrderInbox(folder, self.office, self.operator)

    def now(self) -> float:
        return self.time

    def say(self, text: str) -> None:
        self.said.append(text)

    def perform(self, effects: Iterable[ServerEffect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            if isinstance(effect, Notice):
                self.say(effect.text)

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self.waiting.append(lambda: then(task()))

    def look(self) -> None:
        asyncio.run(self.order_inbox.look(self))

    def order(self, order: Order) -> OrderFile:
        slip = give(self.folder, order)
        self.look()
        return slip

    def answer(self, order: Order) -> Answer | None:
        return answer_to(self.order(order))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "orders")


def test_pause_is_answered_once_the_run_is_still(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepLoop, "is_between_steps", False)
    slip = scene.order(Pause("Ada"))
    assert scene.operator.paused_by == "Ada"
    assert scene.said == ["Ada paused the run"]
    assert answer_to(slip) is None
    monkeypatch.setattr(StepLoop, "is_between_steps", True)
    scene.look()
    assert answer_to(slip) == Answer(True, "paused at step 7")
    withdraw(slip)
    scene.look()
    assert answer_to(slip) is None, "it was answered"


def test_run_goes_on(scene: Scene) -> None:
    assert scene.answer(GoOn("Ada")) == Answer(True, "it was not paused")
    scene.order(Pause("Ada"))
    assert scene.answer(Pause("Bob")) == Answer(True, "Ada had paused it before")
    assert scene.answer(GoOn("Bob")) == Answer(True, "it goes on from step 7")
    assert scene.operator.paused_by == ""
    assert scene.said == ["Ada paused the run", "Bob let the run go on"]


def test_who_waits_for_a_pause_hears_that_it_was_taken_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepLoop, "is_between_steps", False)
    slip = scene.order(Pause("Ada"))
    scene.order(GoOn("Bob"))
    monkeypatch.setattr(StepLoop, "is_between_steps", True)
    scene.look()
    assert answer_to(slip) == Answer(False, "Bob let the run go on before the open step had ended")


def test_checkpoint_is_written_among_the_work_and_then_answered(scene: Scene) -> None:
    slip = scene.order(WriteCheckpoint("Ada"))
    assert (scene.effects, answer_to(slip)) == ([SaveCheckpoint()], None)
    scene.waiting.popleft()()
    scene.look()
    assert answer_to(slip) == Answer(True, "a checkpoint of step 7 was written")
    assert scene.said == ["Ada asks for a checkpoint"]


def test_changed_setting_is_saved_and_answered(scene: Scene) -> None:
    slip = scene.order(Set("Ada", "sigma", "2"))
    scene.waiting.popleft()()
    scene.look()
    text = "sigma: 2, it was 1, from the next step on; a checkpoint of step 7 was written"
    assert answer_to(slip) == Answer(True, text)
    assert (scene.said, scene.effects) == (["Ada changed sigma: 2, it was 1"], [SaveCheckpoint()])


def test_what_can_not_be_done_is_answered_with_the_reason(scene: Scene) -> None:
    assert scene.answer(Set("Ada", "seed", "2")) == Answer(False, "seed: expected sigma")
    answer = scene.answer(SendAway("Ada", "Bob"))
    assert answer is not None
    assert not answer.is_done
    assert "got 'Bob'; there: none" in answer.text
    assert (list(scene.waiting), scene.effects) == ([], [])


def test_run_is_finished_where_it_stands_if_no_step_is_open(scene: Scene) -> None:
    assert scene.answer(Finish("Ada")) == Answer(True, "it ends at step 7")
    assert scene.said == ["Ada finishes the run at step 7"]
    scene.perform(scene.coordinator.tick(1.0))
    assert scene.effects[-1] == EndRun("all 7 steps are done")


def test_run_that_is_finished_may_let_its_rate_fall_first(scene: Scene) -> None:
    falls = "step 10, to which the learning rate falls from step 7 on"
    assert scene.answer(Finish("Ada", steps=3)) == Answer(True, f"it ends at {falls}")
    assert scene.said == [f"Ada finishes the run at {falls}"]


def test_rate_falls_first_where_somebody_is_at_work(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunOperator, "is_at_work", True)
    answer = scene.answer(Finish("Ada"))
    assert answer == Answer(True, "it ends at step 12, to which the learning rate falls from step 7 on")


def test_open_step_is_the_last_of_a_run_that_is_finished(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepLoop, "has_open_step", True)
    assert scene.answer(Finish("Ada")) == Answer(True, "it ends at step 8")
    scene.perform(scene.coordinator.tick(1.0))
    assert scene.effects == []


def test_run_without_a_step_is_not_finished(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "orders", step=0)
    text = "finish: expected a run that has taken a step, got none; stop it instead"
    assert scene.answer(Finish("Ada")) == Answer(False, text)
    assert (scene.said, scene.effects) == ([], [])


def test_run_is_stopped_by_somebody(scene: Scene) -> None:
    assert scene.answer(Stop("Ada")) == Answer(True, "the server stops")
    assert scene.effects[-1] == EndRun("Ada stopped the server")


def test_orders_are_looked_for_once_a_second_and_news_are_told_at_once(scene: Scene) -> None:
    assert scene.order_inbox.is_due(100.0)
    assert not scene.order_inbox.is_due(100.0 + 0.9 * INTERVAL_S)
    scene.order(WriteCheckpoint("Ada"))
    assert not scene.order_inbox.is_due(100.0 + 0.9 * INTERVAL_S)
    scene.waiting.popleft()()
    assert scene.order_inbox.is_due(100.0 + 0.9 * INTERVAL_S)
    scene.look()
    assert scene.order_inbox.is_due(100.0 + 2.0 * INTERVAL_S)


async def test_desk_does_not_look_twice_at_once(scene: Scene) -> None:
    looking = asyncio.create_task(scene.order_inbox.look(scene))
    await asyncio.sleep(0)
    assert not scene.order_inbox.is_due(1e6)
    await looking
    assert scene.order_inbox.is_due(1e6)


def test_what_is_no_order_is_said(scene: Scene) -> None:
    (scene.folder / "1.order").write_text("{")
    scene.look()
    assert len(scene.said) == 1
    assert "1.order: expected an order" in scene.said[0]


def test_folder_that_is_gone_ends_no_run(scene: Scene) -> None:
    give(scene.folder, WriteCheckpoint("Ada"))
    scene.look()
    shutil.rmtree(scene.folder)
    scene.waiting.popleft()()
    scene.look()
    assert "could not be written" in scene.said[-1]
    scene.look()
    assert len(scene.said) == 2
    assert scene.answer(WriteCheckpoint("Bob")) is None
    assert scene.said[-1] == "Bob asks for a checkpoint"


def test_orders_to_the_server_before_are_dropped(tmp_path: Path) -> None:
    give(tmp_path / "orders", Stop("Ada"))
    scene = Scene(tmp_path / "orders")
    scene.look()
    assert scene.effects == []


async def test_data_of_a_step_are_performed_on_the_servers_loop(tmp_path: Path) -> None:
    scene, feed = Scene(tmp_path), Feed()
    OrderInbox(tmp_path, scene.office, scene.operator).open(scene)  # which waits for none
    OrderInbox(tmp_path, scene.office, scene.operator, feed).open(scene)
    await asyncio.to_thread(feed.give, {"x": np.arange(2)}, n_members=3)
    while not scene.effects:
        await asyncio.sleep(0)
    assert scene.said == ["3 members on x"]

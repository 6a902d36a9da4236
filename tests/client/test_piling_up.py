"""What a server or a neighbour says faster than this machine takes it: the conversation ends before the memory does."""

import asyncio

import pytest

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.coordination.effects import ClientEffect
from fedlearn.coordination.work.work import Heard, LineEvent, Unlinked
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.address import Address
from fedlearn.runs.run import Run
from fedlearn.wire.messages import Activations, DataBlock, Goodbye, Message, Proof, Ready
from tests.client.scene import Held, Scene
from tests.client.test_conversation import assignment, run, welcome
from tests.patience import LIMIT_S
from tests.run_folders import fit_task

__all__ = ["run"]


async def test_orders_that_pile_up_are_answered_with_goodbye_before_they_take_the_memory(run: Run) -> None:
    held = Held()
    scene = Scene(held.task, budget=MemoryBudget(2**20))
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(64)]
    async with scene.converse() as conversing:
        await asyncio.to_thread(held.has_begun.wait, LIMIT_S)
        for number in range(20):
            scene.say(DataBlock(number.to_bytes(16, "little"), bytes(2**16)))
        leave = await conversing
        held.may_end.set()
        await scene.has_heard(Goodbye)
    assert leave.is_welcome_back
    assert leave.reason.startswith("memory: expected orders as fast as this machine takes them, 26")


async def test_activations_that_pile_up_are_answered_with_goodbye(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, waiting = MemoryBudget(2**20), [0]
    monkeypatch.setattr(Worker, "activations_waiting_bytes", property(lambda _: waiting[0]))

    def piled() -> list[Message]:
        waiting[0] = budget.max_activations_bytes + 1
        return [DataBlock(bytes(16), bytes(64))]

    scene = Scene(fit_task(), budget=budget)
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = piled
    async with scene.converse() as conversing:
        leave = await conversing
    assert leave.is_welcome_back
    assert leave.reason == (
        "memory: expected orders as fast as this machine takes them, 524 kB are waiting, more than the 524 kB that "
        "it lends for that; --max-memory of a volunteer says how much it lends"
    )


async def test_line_of_a_neighbour_whose_activations_pile_up_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, told = MemoryBudget(2**20), list[LineEvent]()

    def take(_: Worker, event: LineEvent, __: float) -> list[ClientEffect]:
        told.append(event)
        return []

    monkeypatch.setattr(Worker, "neighbour", take)
    monkeypatch.setattr(Worker, "activations_waiting_bytes", property(lambda _: budget.max_activations_bytes + 1))
    conversation = Scene(fit_task(), budget=budget).calling(Address("127.0.0.1", 1))
    conversation._tell(Heard(Activations(0, 0, 1, bytes(8), b"")))
    assert told[1:] == [Unlinked("memory: 524 kB are waiting", is_next=False)]

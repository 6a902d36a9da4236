"""A server that names absurd sizes is told so and left, before any of them is allocated."""

import tracemalloc
from collections.abc import Callable
from typing import final

import msgspec
import pytest

from fedlearn.client.failures import in_short
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.performer import Computed, VolunteerPerformer
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.update import MAX_SPANS, Update
from fedlearn.net.memory import MemoryLink
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Activations, DataBlock, Goodbye, Message, Neighbours
from tests.client.hostile import ATTACKS, UPDATE, Attack, answers
from tests.identities import ADA, NONCE

MAX_BYTES = 128 * 2**20


@final
class Client:
    """A client in memory, as the conversation over sockets has it, and all that it has said."""

    def __init__(self, attack: Attack) -> None:
        self.link = MemoryLink(now=0.0)
        self.left_by: Leave | None = None
        self.heard: list[Message] = []
        self._attack = attack
        self._worker = Worker(name="Ada", threads=1, credentials=ADA)
        volunteer = VolunteerReplica(1, budget=MemoryBudget(MAX_BYTES))
        self._performer = VolunteerPerformer(self._worker, volunteer, self)

    def converse(self) -> None:
        """Until nobody has anything more to say."""
        self._performer.perform(self._worker.start(nonce=NONCE))
        while arrived := self.link.to_server(0.0):
            self.heard += arrived
            for answer in [a for message in arrived for a in answers(self._attack, message)]:
                self.link.server.send(answer)
            for message in self.link.to_client(0.0):
                self._performer.perform(self._worker.received(message, 0.0))

    def now(self) -> float:
        return 0.0

    def send(self, message: Message) -> None:
        self.link.client.send(message)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        try:
            then(task())
        except Exception as error:
            self._performer.perform(self._worker.fail(in_short(error)))

    def say(self, text: str) -> None:
        pass

    def introduce(self, neighbours: Neighbours) -> None:
        raise AssertionError(f"{neighbours} were named to who does not listen")

    def forward(self, activations: Activations) -> None:
        raise AssertionError(f"members from {activations.first_member} on were to go to nobody")

    def left(self, leave: Leave) -> None:
        self.left_by = leave


@pytest.mark.parametrize("name", ATTACKS)
def test_absurd_size_is_refused_before_it_is_allocated(name: str) -> None:
    attack = ATTACKS[name]()
    client = Client(attack)
    # What the attack itself takes on both sides of the link is its sender's.
    sent = sum(message.utilities.nbytes for message in attack.order if isinstance(message, Update))
    sent += sum(len(message.columns) for message in attack.opening if isinstance(message, DataBlock))
    tracemalloc.start()
    try:
        client.converse()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if attack.answer:
        assert client.left_by is not None
        assert client.left_by.is_refusal
        assert client.left_by.reason.startswith(attack.answer)
        assert isinstance(client.heard[-1], Goodbye)
    assert peak < 40 * 2**20 + 8 * sent


def test_spans_without_end_are_refused_before_they_are_made() -> None:
    spans = tuple((2 * number, 1) for number in range(MAX_SPANS + 1))
    payload = encode(msgspec.structs.replace(UPDATE, spans=spans))
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=f"of length <= {MAX_SPANS}"):
            decode(payload, Update)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20

"""A relay is leased members on data that it was never sent: it parts from its server, and from nobody else."""

import msgspec

from fedlearn.coordination.effects import Leave, Reply
from fedlearn.coordination.relay.relay import Relay
from fedlearn.coordination.work.worker import Worker
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment, DataBlock, Goodbye
from tests.identities import ADA, NONCE
from tests.wire.conftest import EXAMPLES

NAME = b"a block."


def begun() -> Relay:
    def serve(*_: object) -> object:
        raise AssertionError("there is nothing to serve")

    relay = Relay(serve)  # type: ignore[arg-type]
    relay.start(Worker(name="relay", threads=1, credentials=ADA), nonce=NONCE)
    return relay


def assignment(block: bytes) -> Assignment:
    example = EXAMPLES[Assignment]
    assert isinstance(example, Assignment)
    return msgspec.structs.replace(example, block=block)


def test_a_lease_on_data_that_never_came_ends_the_conversation() -> None:
    reason = f"block {NAME.hex()}: expected one that the server sent lately, got a name without data"
    effects = begun().received(assignment(NAME), 0.0)
    assert effects == [Reply(Goodbye(reason)), Leave(reason, is_welcome_back=False, is_refusal=True)]


def test_a_lease_on_data_that_came_or_on_none_is_taken() -> None:
    relay = begun()
    relay.received(DataBlock(NAME, b""), 0.0)
    assert relay.received(assignment(NAME), 0.0) == []
    assert begun().received(assignment(NO_BLOCK), 0.0) == []

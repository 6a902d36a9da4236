"""A relay is leased what volunteers below can't be: members without data, beyond all numbers, or in broken groups."""

import msgspec
import pytest

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


@pytest.mark.parametrize(("first_member", "is_taken"), [(2**63 - 65, True), (2**63 - 64, False)])
def test_members_beyond_what_can_be_said_below_end_the_conversation(first_member: int, *, is_taken: bool) -> None:
    asked = msgspec.structs.replace(assignment(NO_BLOCK), first_member=first_member, quota=64)
    effects = begun().received(asked, 0.0)
    assert any(isinstance(effect, Leave) for effect in effects) is not is_taken


@pytest.mark.parametrize(("quota", "is_taken"), [(60, True), (61, False)])
def test_members_that_are_no_whole_groups_end_the_conversation(quota: int, *, is_taken: bool) -> None:
    asked = msgspec.structs.replace(assignment(NO_BLOCK), quota=quota, group_size=20)
    effects = begun().received(asked, 0.0)
    assert any(isinstance(effect, Leave) for effect in effects) is not is_taken


@pytest.mark.parametrize(("rank", "is_taken"), [(0, True), (-1, False)])
def test_noise_of_no_rank_that_there_is_ends_the_conversation(rank: int, *, is_taken: bool) -> None:
    lease = assignment(NO_BLOCK)
    asked = msgspec.structs.replace(lease, perturbation=msgspec.structs.replace(lease.perturbation, rank=rank))
    effects = begun().received(asked, 0.0)
    assert any(isinstance(effect, Leave) for effect in effects) is not is_taken

import pytest

from fedlearn.net.memory import MemoryLink
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.encoding.frames import CHUNK_BYTES
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import DataBlock, Ping, Welcome
from fedlearn.wire.states import State
from tests.identities import CHALLENGE, hello_of, proof_of

HELLO = hello_of()
WELCOME = Welcome("7", Invitation("rnn", 3, {}, {}))


@pytest.fixture
def link() -> MemoryLink:
    link = MemoryLink(now=0.0)
    link.client.send(HELLO)
    link.to_server(0.0)
    admit(link)
    link.server.send(WELCOME)
    link.to_client(0.0)
    return link


def admit(link: MemoryLink) -> None:
    link.server.send(CHALLENGE)
    link.to_client(0.0)
    link.client.send(proof_of())
    link.to_server(0.0)


def test_messages_arrive_at_the_other_end_in_order_and_once() -> None:
    link = MemoryLink(now=0.0)
    link.client.send(HELLO)
    link.client.send(Ping())
    assert link.to_server(1.0) == [HELLO]
    assert link.to_server(2.0) == []
    admit(link)
    link.server.send(WELCOME)
    assert link.to_client(2.0) == [WELCOME]
    assert link.client.state is link.server.state is State.WELCOMED


def test_nothing_arrives_before_it_is_carried(link: MemoryLink) -> None:
    before = link.client.bytes_in
    link.server.send(DataBlock(bytes(16), b"columns"))
    assert link.client.bytes_in == before


def test_message_of_many_chunks_arrives_whole(link: MemoryLink) -> None:
    block = DataBlock(bytes(16), bytes(range(256)) * (10 * CHUNK_BYTES // 256))
    link.server.send(block)
    (arrived,) = link.to_client(0.0)
    assert isinstance(arrived, DataBlock)
    assert arrived.columns == block.columns
    assert link.client.bytes_in == link.server.bytes_out > len(block.columns)


def test_silence_is_told_by_the_time_of_carrying(link: MemoryLink) -> None:
    link.server.send(Ping())
    link.to_client(200.0)
    link.client.tick(210.0)
    with pytest.raises(RemoteProtocolError, match="peer: expected a message"):
        link.server.tick(210.0)

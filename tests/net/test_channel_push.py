"""Messages that a channel is given by the loop itself: whatever they do ends that conversation only."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fedlearn.net import channel as module
from fedlearn.net.channel import Channel
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Message, Proof
from fedlearn.wire.states import State
from tests.net.peers import Peer, joined
from tests.net.scene import fail, greeted

PROOF = Proof(bytes(64))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick comes to the rescue."""
    monkeypatch.setattr(module, "TICK_S", 3600.0)


async def challenged(channel: Channel, peer: Peer, then: Callable[[Message], None]) -> "asyncio.Task[str]":
    """The channel, running, once its line pushes: the Hello was read, and the Pong behind it is there."""
    running = await greeted(channel, peer, lambda message: None if isinstance(message, Hello) else then(message))
    channel.connection.state = peer.connection.state = State.CHALLENGED
    return running


def protocol_of(channel: Channel) -> Any:  # noqa: ANN401 (asyncio's own types)
    return channel._stream._writer.transport.get_protocol()  # type: ignore[attr-defined]


async def test_a_line_pushes_from_the_first_message_on() -> None:
    heard: list[Message] = []
    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, heard.append)
        assert isinstance(protocol_of(channel), asyncio.BufferedProtocol)
        await peer.say(PROOF)
        await peer.say(Goodbye("enough"))
        assert await running == "the conversation is over"
        assert [type(message) for message in heard] == [Proof, Goodbye]


async def test_a_bug_ends_the_conversation_and_is_not_left_to_the_loop() -> None:
    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, fail)
        await peer.say(PROOF)
        with pytest.raises(RuntimeError, match="a bug"):
            await running
        assert await peer.hear() == b""


async def test_whoever_breaks_the_protocol_learns_why() -> None:
    def refuse(_: Message) -> None:
        raise RemoteProtocolError("its Proof is none")

    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, refuse)
        await peer.say(PROOF)
        assert await running == "its Proof is none"
        farewell = await peer.next_message()
        assert farewell == Farewell("refused", "its Proof is none")


async def test_nothing_is_heard_of_whoever_was_dropped() -> None:
    heard: list[Message] = []
    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, heard.append)
        channel.drop("it held too much")
        channel._pushed(pack(PROOF).frame(0), heard.append)
        assert await running == "it held too much"
        channel._pushed(pack(PROOF).frame(0), heard.append)
        assert heard == []


async def test_a_bug_in_who_was_dropped_meanwhile_is_forgotten() -> None:
    async with joined() as (channel, _, peer):

        def drop(_: Message) -> None:
            channel.drop("too much")
            raise RuntimeError("a bug")

        running = await challenged(channel, peer, drop)
        await peer.say(PROOF)
        assert await running == "too much"


async def test_a_message_after_the_parting_word_changes_nothing() -> None:
    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, lambda _: None)
        await peer.write(pack(Goodbye("enough")).frame(0) + pack(PROOF).frame(0))
        assert "may not come when the sender has parted" in await running


async def test_a_bug_is_not_reported_where_the_line_ended_first() -> None:
    async with joined() as (channel, _, peer):
        running = await challenged(channel, peer, fail)
        channel._pushed(pack(PROOF).frame(0), fail)
        channel._stream._reader.feed_eof()  # type: ignore[attr-defined]
        assert await running == "the connection was closed"

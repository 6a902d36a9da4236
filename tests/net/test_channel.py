"""Channels over real sockets on loopback; a peer is a socket that reads and writes only what a test says."""

import asyncio
import socket
import struct
import time

import pytest

from fedlearn.net import channel as module
from fedlearn.wire import limits
from fedlearn.wire.encoding.frames import FrameParser
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import MAX_REASON_LENGTH, PROTOCOL_VERSION, Farewell, Goodbye, Hello, Message, Welcome
from tests.net.peers import SOON_S, admit, closed, joined
from tests.net.scene import BLOCK, HELLO, WELCOME, greeted, ignore

pytestmark = pytest.mark.usefixtures("patient")


async def test_messages_go_both_ways_as_soon_as_they_are_sent() -> None:
    heard: list[Message] = []
    async with joined() as (channel, _, peer):
        running = await greeted(channel, peer, heard.append)
        assert heard == [HELLO]
        admit(channel, peer)
        for message in (WELCOME, BLOCK):
            channel.send(message)
            assert type(await peer.next_message()) is type(message)
        await peer.say(Goodbye("enough"))
        assert await running == "the conversation is over"
        assert type(heard[-1]) is Goodbye


async def test_an_encoding_that_is_known_is_sent_as_it_is() -> None:
    async with joined() as (channel, _, peer):
        running = await greeted(channel, peer)
        admit(channel, peer)
        other = Welcome("8", WELCOME.invitation)
        channel.send(WELCOME, pack(other))
        assert await peer.next_message() == other
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_peer_that_hangs_up_is_told_from_one_that_parts() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        await peer.say(HELLO)
        peer.socket.shutdown(socket.SHUT_WR)
        assert await running == "the connection was closed"
        assert await peer.hear() == b""


async def test_a_parting_word_stays_where_the_peer_has_not_stopped_talking() -> None:
    """Closing with bytes unread would reset the line, and take the word from a peer that has not read it yet."""

    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        await peer.say(HELLO)
        admit(channel, peer)
        channel.send(Farewell("run_ended", "all steps are done"))
        assert isinstance(await peer.next_message(), Farewell)
        for _ in range(3):
            await peer.write(b"what it was about to say")
            assert await asyncio.wait({running}, timeout=0.05) == (set(), {running})
        peer.socket.shutdown(socket.SHUT_WR)
        assert await running == "the connection was closed"
        assert await peer.hear() == b""


async def test_a_line_that_breaks_gives_the_systems_reason() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        # Closing with nothing to linger for resets the connection.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        assert await running == "Connection reset by peer"


async def test_a_peer_that_breaks_the_protocol_learns_why() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        await peer.say(HELLO)
        await peer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
        farewell = await peer.next_message()
        assert farewell == Farewell("refused", "magic: expected b'fL', got b'GE'; the peer does not speak fedlearn")
        assert await running == farewell.reason
        assert await peer.hear() == b""


async def test_a_reason_that_quotes_the_peer_is_short_and_printable() -> None:
    def refuse(_: Message) -> None:
        raise RemoteProtocolError("\x1b[31mred\n" + "x" * 5000)

    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(refuse))
        await peer.say(HELLO)
        farewell = await peer.next_message()
        assert isinstance(farewell, Farewell)
        assert farewell.reason == "?[31mred?" + "x" * (MAX_REASON_LENGTH - 9)
        assert (await running).startswith("\x1b[31mred")


async def test_whose_first_words_can_not_be_read_learns_why() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        peer.connection.send(HELLO)
        no_utf8 = Parcel(Hello, bytes([0x95, 1, PROTOCOL_VERSION]) + b"\xa2\xff\xfe\x01\xc4\x00\xc4\x00")
        await peer.write(no_utf8.frame(0))
        farewell = await peer.next_message()
        assert isinstance(farewell, Farewell)
        assert farewell.kind == "refused"
        assert "Hello: " in farewell.reason
        assert await running == farewell.reason


@pytest.mark.parametrize("version", [0, 2, 255])
async def test_peer_of_another_frame_version_is_told_so_in_a_frame_of_this_one(version: int) -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        peer.connection.send(HELLO)
        data = bytearray(peer.connection.data_to_send())
        data[2] = version
        await peer.write(bytes(data))
        reason = f"frame version: expected 1, got {version}; install the same fedlearn version on both sides"
        assert await peer.next_message() == Farewell("refused", reason)
        assert await peer.hear() == b""
        assert await running == reason


async def test_client_says_in_words_that_a_server_is_of_another_frame_version() -> None:
    async with joined("client") as (channel, _, peer):
        channel.send(HELLO)
        running = asyncio.create_task(channel.run(ignore))
        await peer.next_message()
        data = bytearray(pack(WELCOME).frame(0))
        data[2] = 9
        await peer.write(bytes(data))
        assert await running == "frame version: expected 1, got 9; install the same fedlearn version on both sides"


async def test_a_server_that_breaks_the_protocol_learns_why() -> None:
    async with joined("client") as (channel, _, peer):
        channel.send(HELLO)
        running = asyncio.create_task(channel.run(ignore))
        assert type(await peer.next_message()) is Hello
        await peer.write(bytes(100))
        goodbye = await peer.next_message()
        assert isinstance(goodbye, Goodbye)
        assert await peer.hear() == b""
        assert goodbye.reason == await running
        assert "the peer does not speak fedlearn" in goodbye.reason
        assert channel.has_erred


async def test_a_silent_peer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    async with joined(now=time.monotonic() - 100.0) as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        assert "expected a message" in await running
        assert b"expected a message" in await peer.hear()
        assert await peer.hear() == b""


async def test_who_did_not_run_itself_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "LATE_S", 0.1)
    monkeypatch.setattr(module, "STALL_S", 0.1)
    monkeypatch.setattr(limits, "SILENCE_LIMIT_S", 0.15)
    async with joined("client") as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        await asyncio.sleep(0)
        time.sleep(0.5)  # the whole process, as where it is suspended
        channel.send(HELLO)  # and this waits when the next tick comes
        assert isinstance(await peer.next_message(), Hello)
        assert not running.done()
        assert "expected a message" in await running  # once it runs, silence counts


async def test_a_ping_leaves_at_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(limits, "PING_AFTER_S", 0.0)
    async with joined("client") as (channel, _, peer):
        channel.send(HELLO)
        running = asyncio.create_task(channel.run(ignore))
        parser, tags = FrameParser(), list[int]()
        while len(tags) < 2:
            tags += [frame.message_type for frame in parser.feed(await peer.hear())]
        assert tags[:2] == [1, 5]  # Hello, Ping
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_who_is_dropped_hears_nothing_more() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        channel.drop("it held too much")
        channel.drop("twice")
        assert await running == "it held too much"
        assert await peer.hear() == b""


async def test_a_parting_word_arrives_before_the_socket_closes() -> None:
    async with joined() as (channel, writer, peer):
        running = await greeted(channel, peer)
        admit(channel, peer)
        channel.send(WELCOME)
        channel.send(Farewell("run_ended", "all steps are done"))
        assert type(await peer.next_message()) is Welcome
        assert await peer.next_message() == Farewell("run_ended", "all steps are done")
        assert not running.done()  # closing first could have discarded it
        peer.socket.shutdown(socket.SHUT_WR)
        assert await running == "the connection was closed"
        await asyncio.wait_for(closed(writer), SOON_S)


async def test_nobody_is_waited_for_long_after_a_parting_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTING_S", 0.0)
    async with joined() as (channel, _, peer):
        running = await greeted(channel, peer)
        channel.send(Farewell("refused", "no room"))
        assert await running == "the conversation is over"
        assert await peer.next_message() == Farewell("refused", "no room")
        assert await peer.hear() == b""


async def test_a_cancelled_channel_closes_its_socket() -> None:
    async with joined() as (channel, _, peer):
        running = await greeted(channel, peer)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        assert await peer.hear() == b""

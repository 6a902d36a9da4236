"""Channels over real sockets on loopback; a peer is a socket that reads and writes only what a test says."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fedlearn.net import tcp
from fedlearn.net.tcp import Channel
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire import limits
from fedlearn.wire.codec import encode
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.frames import FrameParser, split
from fedlearn.wire.messages import (
    MAX_REASON_LENGTH,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ping,
    Welcome,
)
from tests.identities import hello_of
from tests.net.peers import SOON_S, Peer, admit, closed, joined

NEVER_S = 3600.0
MIB = 2**20
HELLO = hello_of()
WELCOME = Welcome("7", Invitation("rnn", 3, {}, {}))
BLOCK = DataBlock(bytes(16), bytes(MIB))
N_BLOCKS = 64


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs a test; whatever the loop would only have logged fails it."""
    logged: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        await asyncio.wait_for(test, 2 * SOON_S)

    asyncio.run(main())
    assert logged == []


def ignore(_: Message) -> None:
    """A message that nobody waits for."""


def flooding(channel: Channel, peer: Peer) -> Callable[[Message], None]:
    """Answers Hello by far more than the system takes for a peer that does not read."""

    def answer(message: Message) -> None:
        if isinstance(message, Hello):
            admit(channel, peer)
            channel.send(WELCOME)
            for _ in range(N_BLOCKS):
                channel.send(BLOCK)

    return answer


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens just because time goes by, unless a test says so."""
    for name in ("TICK_S", "PARTING_S", "LINGER_S"):
        monkeypatch.setattr(tcp, name, NEVER_S)


def test_messages_go_both_ways_as_soon_as_they_are_sent() -> None:
    async def main() -> None:
        heard: list[Message] = []
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(heard.append))
            await peer.say(HELLO)
            await peer.say(Ping())
            assert await peer.hear()  # the Pong
            assert heard == [HELLO]
            admit(channel, peer)
            for message in (WELCOME, BLOCK):
                channel.send(message)
                assert type(await peer.next_message()) is type(message)
            await peer.say(Goodbye("enough"))
            assert await running == "the conversation is over"
            assert type(heard[-1]) is Goodbye

    run(main())


def test_an_encoding_that_is_known_is_sent_as_it_is() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.say(Ping())
            await peer.hear()
            admit(channel, peer)
            other = Welcome("8", WELCOME.invitation)
            channel.send(WELCOME, encode(other))
            assert await peer.next_message() == other
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_a_peer_that_hangs_up_is_told_from_one_that_parts() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            peer.socket.shutdown(socket.SHUT_WR)
            assert await running == "the connection was closed"
            assert await peer.hear() == b""

    run(main())


def test_a_line_that_breaks_gives_the_systems_reason() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            # Closing with nothing to linger for resets the connection.
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.close()
            assert await running == "Connection reset by peer"

    run(main())


def test_a_peer_that_breaks_the_protocol_learns_why() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
            farewell = await peer.next_message()
            assert farewell == Farewell("refused", "magic: expected b'fL', got b'GE'; the peer is no fedlearn")
            assert await running == farewell.reason
            assert await peer.hear() == b""

    run(main())


def test_a_reason_that_quotes_the_peer_is_short_and_printable() -> None:
    async def main() -> None:
        def refuse(_: Message) -> None:
            raise RemoteProtocolError("\x1b[31mred\n" + "x" * 5000)

        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(refuse))
            await peer.say(HELLO)
            farewell = await peer.next_message()
            assert isinstance(farewell, Farewell)
            assert farewell.reason == "?[31mred?" + "x" * (MAX_REASON_LENGTH - 9)
            assert (await running).startswith("\x1b[31mred")

    run(main())


def test_whose_first_words_can_not_be_read_learns_why() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            peer.connection.send(HELLO)
            hello = as_frame(b"\x95\x01\x04\xa2\xff\xfe\x01\xc4\x00\xc4\x00")  # a name that is not UTF-8
            await peer.write(hello)
            farewell = await peer.next_message()
            assert isinstance(farewell, Farewell)
            assert farewell.kind == "refused"
            assert "Hello: " in farewell.reason
            assert await running == farewell.reason

    run(main())


def as_frame(payload: bytes) -> bytes:
    return b"".join(split(payload, message_type=1, stream=0))


def test_who_speaks_another_language_is_told_so_and_cut_off() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            peer.connection.send(HELLO)
            await peer.write(bytes(100))
            assert type(await peer.next_message()) is Farewell
            assert await peer.hear() == b""
            assert "the peer is no fedlearn" in await running

    run(main())


def test_a_client_says_nothing_to_a_server_that_breaks_the_protocol() -> None:
    async def main() -> None:
        async with joined("client") as (channel, _, peer):
            channel.send(HELLO)
            running = asyncio.create_task(channel.run(ignore))
            assert type(await peer.next_message()) is Hello
            await peer.write(bytes(100))
            assert await peer.hear() == b""
            assert "the peer is no fedlearn" in await running

    run(main())


def test_a_silent_peer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(now=time.monotonic() - 100.0) as (channel, _, peer):
            peer.connection.send(HELLO)
            reason = await channel.run(ignore)
            assert "expected a sign of life" in reason
            assert await peer.next_message() == Farewell("refused", reason)
            assert await peer.hear() == b""

    run(main())


def test_a_ping_leaves_at_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)
    monkeypatch.setattr(limits, "PING_AFTER_S", 0.0)

    async def main() -> None:
        async with joined("client") as (channel, _, peer):
            channel.send(HELLO)
            running = asyncio.create_task(channel.run(ignore))
            parser, tags = FrameParser(), list[int]()
            while len(tags) < 2:
                tags += [frame.message_type for frame in parser.feed(await peer.hear())]
            assert tags[:2] == [1, 5]  # Hello, Ping
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_a_peer_that_never_reads_is_dropped_once_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(max_queued_bytes=4 * MIB) as (channel, _, peer):
            running = asyncio.create_task(channel.run(flooding(channel, peer)))
            await peer.say(HELLO)
            reason = await running
            waiting = channel.connection.bytes_queued
            assert reason == f"it reads too slowly: {waiting} bytes are waiting"
            assert waiting > 4 * MIB

    run(main())


def test_a_peer_for_which_no_more_than_that_waits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(max_queued_bytes=N_BLOCKS * MIB + 4096) as (channel, _, peer):
            ticks, seen = asyncio.Event(), list[int]()
            tick = channel.connection.tick

            def counted(now: float) -> None:
                tick(now)
                seen.append(channel.connection.bytes_queued)
                if len(seen) > 5 and seen[-1] == seen[-5] > 0:
                    ticks.set()

            monkeypatch.setattr(channel.connection, "tick", counted)
            running = asyncio.create_task(channel.run(flooding(channel, peer)))
            await peer.say(HELLO)
            await ticks.wait()
            assert not running.done()
            arrived = 0
            while arrived < 1 + N_BLOCKS:
                arrived += len(peer.connection.receive_data(await peer.hear(), 0.0))
            await peer.say(Goodbye("enough"))
            assert await running == "the conversation is over"

    run(main())


def test_a_socket_does_not_outlive_its_channel_by_a_peer_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)
    monkeypatch.setattr(tcp, "LINGER_S", 0.0)

    async def main() -> None:
        async with joined(max_queued_bytes=4 * MIB) as (channel, writer, peer):
            running = asyncio.create_task(channel.run(flooding(channel, peer)))
            await peer.say(HELLO)
            await running
            await asyncio.wait_for(closed(writer), SOON_S)

    run(main())


def test_what_the_socket_took_already_still_reaches_a_peer_that_reads_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(max_queued_bytes=4 * MIB) as (channel, writer, peer):
            running = asyncio.create_task(channel.run(flooding(channel, peer)))
            await peer.say(HELLO)
            await running
            arrived = 0
            while data := await peer.hear():
                arrived += len(data)
            assert arrived == channel.connection.bytes_out
            await asyncio.wait_for(closed(writer), SOON_S)
            assert channel._lingering is not None
            await channel._lingering

    run(main())


def test_a_parting_word_arrives_before_the_socket_closes() -> None:
    async def main() -> None:
        async with joined() as (channel, writer, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.say(Ping())
            await peer.hear()
            admit(channel, peer)
            channel.send(WELCOME)
            channel.send(Farewell("run_ended", "all steps are done"))
            assert type(await peer.next_message()) is Welcome
            assert await peer.next_message() == Farewell("run_ended", "all steps are done")
            assert not running.done()  # closing first could have discarded it
            peer.socket.shutdown(socket.SHUT_WR)
            assert await running == "the connection was closed"
            await asyncio.wait_for(closed(writer), SOON_S)

    run(main())


def test_nobody_is_waited_for_long_after_a_parting_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "PARTING_S", 0.0)

    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.say(Ping())
            await peer.hear()
            channel.send(Farewell("refused", "no room"))
            assert await running == "the conversation is over"
            assert await peer.next_message() == Farewell("refused", "no room")
            assert await peer.hear() == b""

    run(main())


def test_a_cancelled_channel_closes_its_socket() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.say(Ping())
            await peer.hear()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert running.cancelled()
            assert await peer.hear() == b""

    run(main())

"""Channels over real sockets on loopback; a peer is a socket that reads and writes only what a test says."""

import asyncio
import gc
import re
import socket
import struct
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from fedlearn.net import channel as module
from fedlearn.net.channel import Channel
from fedlearn.net.memory import MemoryStream
from fedlearn.net.tcp import TcpStream
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire import limits
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.frames import HEADER_BYTES, FrameParser
from fedlearn.wire.messages import (
    MAX_REASON_LENGTH,
    PROTOCOL_VERSION,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ping,
    Welcome,
)
from fedlearn.wire.parcel import Parcel, pack
from fedlearn.wire.states import State
from tests.identities import hello_of
from tests.net.peers import SOON_S, admit, closed, joined

NEVER_S = 3600.0
MIB = 2**20
HELLO = hello_of()
WELCOME = Welcome("7", Invitation("rnn", 3, {}, {}))
BLOCK = DataBlock(bytes(16), bytes(MIB))
PARCEL = pack(BLOCK)
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


def fail(_: Message) -> None:
    raise RuntimeError("a bug")


def flooding(channel: Channel) -> Callable[[Message], None]:
    """Answers Hello by far more than the system takes for a peer that does not read."""

    def answer(message: Message) -> None:
        if isinstance(message, Hello):
            channel.connection.state = State.PROVEN  # as if it had proven who it is
            channel.send(WELCOME)
            for _ in range(N_BLOCKS):
                channel.send(BLOCK, PARCEL)

    return answer


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens just because time goes by, unless a test says so."""
    for name in ("TICK_S", "PARTING_S", "STALL_S"):
        monkeypatch.setattr(module, name, NEVER_S)


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
            channel.send(WELCOME, pack(other))
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
            no_utf8 = Parcel(Hello, bytes([0x95, 1, PROTOCOL_VERSION]) + b"\xa2\xff\xfe\x01\xc4\x00\xc4\x00")
            await peer.write(no_utf8.frame(0))
            farewell = await peer.next_message()
            assert isinstance(farewell, Farewell)
            assert farewell.kind == "refused"
            assert "Hello: " in farewell.reason
            assert await running == farewell.reason

    run(main())


@pytest.mark.parametrize("version", [0, 2, 255])
def test_peer_of_another_frame_version_is_told_so_in_a_frame_of_this_one(version: int) -> None:
    async def main() -> None:
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

    run(main())


def test_client_says_in_words_that_a_server_is_of_another_frame_version() -> None:
    async def main() -> None:
        async with joined("client") as (channel, _, peer):
            channel.send(HELLO)
            running = asyncio.create_task(channel.run(ignore))
            await peer.next_message()
            data = bytearray(pack(WELCOME).frame(0))
            data[2] = 9
            await peer.write(bytes(data))
            assert await running == "frame version: expected 1, got 9; install the same fedlearn version on both sides"

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
    monkeypatch.setattr(module, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(now=time.monotonic() - 100.0) as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            assert "expected a sign of life" in await running
            assert b"expected a sign of life" in await peer.hear()
            assert await peer.hear() == b""

    run(main())


def test_a_ping_leaves_at_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
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
    monkeypatch.setattr(module, "TICK_S", 0.0)

    async def main() -> None:
        async with joined(max_queued_bytes=4 * MIB) as (channel, _, peer):
            running = asyncio.create_task(channel.run(flooding(channel)))
            await peer.say(HELLO)
            found = re.fullmatch(r"it reads too slowly: (\d+) bytes are waiting", await running)
            assert found is not None
            assert int(found.group(1)) > 4 * MIB
            assert (channel.connection.bytes_queued, list(channel.connection.parcels())) == (0, [])


def test_a_peer_that_takes_nothing_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.1)

    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(flooding(channel)))
            await peer.say(HELLO)
            assert re.fullmatch(r"it does not read: \d+ bytes have waited for 0\.1 s", await running)

    run(main())


def test_a_peer_for_which_nothing_waits_may_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.0)

    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            for _ in range(100):
                await asyncio.sleep(0)
            await peer.say(Goodbye("enough"))
            assert await running == "the conversation is over"

    run(main())


def test_a_peer_holds_little_besides_what_it_shares() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(flooding(channel)))
            await peer.say(HELLO)
            while channel.connection.bytes_queued == 0:
                await asyncio.sleep(0)
            assert channel.private_bytes <= module.WRITE_BYTES + HEADER_BYTES
            assert {id(parcel) for parcel in channel.connection.parcels()} == {id(PARCEL)}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_who_is_dropped_hears_nothing_more() -> None:
    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            channel.drop("it held too much")
            channel.drop("twice")
            assert await running == "it held too much"
            assert await peer.hear() == b""

    run(main())


def test_flood_is_told_from_other_faults() -> None:
    async def main() -> None:
        for data, is_flood in ((pack(Ping()).frame(0) * 1000, True), (bytes(100), False)):
            async with joined() as (channel, _, peer):
                running = asyncio.create_task(channel.run(ignore))
                await peer.say(HELLO)
                await peer.write(data)
                await running
                assert channel.has_flooded is is_flood

    run(main())


def test_others_have_their_turn_while_one_peer_takes_without_end() -> None:
    turns = 0

    async def main() -> None:
        nonlocal turns
        here, there = MemoryStream.pair(2**30)
        server, client = Connection("server", now=time.monotonic()), Connection("client", now=time.monotonic())
        channel = Channel(server, here, max_queued_bytes=2**30)
        client.send(HELLO)
        there.write(client.data_to_send())
        client.state = State.PROVEN
        running = asyncio.create_task(channel.run(flooding(channel)))
        other = asyncio.create_task(channel_to(there, client))
        while sum(parcel is PARCEL for parcel in server.parcels()) or not server.bytes_out:
            await asyncio.sleep(0)
            turns += 1
        assert turns > N_BLOCKS * MIB // module.WRITE_BYTES // 4
        for task in (running, other):
            task.cancel()
        await asyncio.gather(running, other, return_exceptions=True)

    async def channel_to(stream: MemoryStream, connection: Connection) -> str:
        return await Channel(connection, stream, max_queued_bytes=2**30).run(ignore)

    run(main())


def test_a_peer_for_which_no_more_than_that_waits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)

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
            running = asyncio.create_task(channel.run(flooding(channel)))
            await peer.say(HELLO)
            peer.connection.state = State.PROVEN
            await ticks.wait()
            assert not running.done()
            arrived = 0
            while arrived < 1 + N_BLOCKS:
                arrived += len(peer.connection.receive_data(await peer.hear(), 0.0))
            await peer.say(Goodbye("enough"))
            assert await running == "the conversation is over"

    run(main())


def test_a_socket_does_not_outlive_its_channel_by_a_peer_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.1)

    async def main() -> None:
        async with joined() as (channel, writer, peer):
            running = asyncio.create_task(channel.run(flooding(channel)))
            await peer.say(HELLO)
            await running
            assert writer.transport.get_write_buffer_size() == 0
            await asyncio.wait_for(closed(writer), SOON_S)
            assert (channel.connection.bytes_queued, list(channel.connection.parcels())) == (0, [])

    run(main())


@pytest.mark.parametrize(
    "end", ["reset", "hang up", "break", "flood", "goodbye", "stall", "drop", "cancel", "silence", "bug"]
)
def test_nothing_of_a_peer_outlives_its_channel(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0 if end in ("stall", "silence") else NEVER_S)
    monkeypatch.setattr(module, "STALL_S", 0.0)

    async def main() -> None:
        left: list[weakref.ref[Any]] = []
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            opened_at = time.monotonic() - (100.0 if end == "silence" else 0.0)
            channel = Channel(Connection("server", now=opened_at), TcpStream(reader, writer), max_queued_bytes=2**30)
            left.extend(weakref.ref(part) for part in (channel, channel.connection, reader, writer, writer.transport))
            handlers = {"goodbye": ignore, "bug": fail}
            running = asyncio.create_task(channel.run(handlers.get(end, flooding(channel))))
            await asyncio.sleep(0)
            if end in ("drop", "cancel"):
                channel.drop("too much") if end == "drop" else running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            done.set_result(None)

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        raw = socket.create_connection(listener.sockets[0].getsockname())
        data = {"break": bytes(100), "flood": pack(Ping()).frame(0) * 1000, "goodbye": pack(Goodbye("x")).frame(0)}
        with suppress(OSError):
            raw.sendall(pack(HELLO).frame(0) + data.get(end, b""))
        if end == "reset":
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()
        elif end == "hang up":
            raw.shutdown(socket.SHUT_WR)
        await done
        raw.close()
        listener.close()
        for _ in range(1000):
            await asyncio.sleep(0)
        *parts, transport = [part() for part in left]
        assert parts == [None] * 4
        # asyncio's own knows itself; what it held of the peer's is gone.
        assert transport is None or (transport.is_closing() and transport.get_write_buffer_size() == 0)

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_others_have_their_turn_while_one_peer_sends_without_end() -> None:
    turns = 0

    async def main() -> None:
        nonlocal turns
        here, there = MemoryStream.pair(2**30)
        client = Connection("client", now=time.monotonic())
        client.send(HELLO)
        there.write(pack(Ping()).frame(0) * 100_000)
        there.close()
        running = asyncio.create_task(Channel(client, here, max_queued_bytes=2**30).run(ignore))
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 26 * 100_000 // module.READ_BYTES

    run(main())


def test_something_waits_from_when_it_began_until_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)

    async def main() -> None:
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            ping = pack(Ping()).frame(0)
            await peer.write(ping[:20])
            while channel.private_bytes == 0:
                await asyncio.sleep(0)
            began = channel.waiting_since
            for _ in range(100):
                await asyncio.sleep(0)
            assert channel.waiting_since == began
            await peer.write(ping[20:])
            while channel.waiting_since == began:
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

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
    monkeypatch.setattr(module, "PARTING_S", 0.0)

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

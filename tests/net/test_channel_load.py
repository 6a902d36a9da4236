"""Channels whose peer takes too little or sends too much, and what is left of one that has ended."""

import asyncio
import gc
import re
import socket
import struct
import time
import weakref
from contextlib import suppress
from typing import Any

import pytest

from fedlearn.net import channel as module
from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.frames import HEADER_BYTES
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import Goodbye, Ping
from fedlearn.wire.states import State
from tests.loops import run
from tests.net.memory_stream import MemoryStream
from tests.net.peers import SOON_S, closed, joined
from tests.net.scene import HELLO, MIB, N_BLOCKS, NEVER_S, PARCEL, fail, flooding, ignore

pytestmark = pytest.mark.usefixtures("patient")


async def test_a_peer_that_never_reads_is_dropped_once_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    async with joined(max_queued_bytes=4 * MIB) as (channel, _, peer):
        running = asyncio.create_task(channel.run(flooding(channel)))
        await peer.say(HELLO)
        found = re.fullmatch(r"it reads too slowly: (\d+) bytes are waiting", await running)
        assert found is not None
        assert int(found.group(1)) > 4 * MIB
        assert (channel.connection.bytes_queued, list(channel.connection.parcels())) == (0, [])


async def test_a_peer_that_takes_nothing_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.1)
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(flooding(channel)))
        await peer.say(HELLO)
        assert re.fullmatch(r"it does not read: \d+ bytes have waited for 0\.1 s", await running)


async def test_a_peer_for_which_nothing_waits_may_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.0)
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(ignore))
        await peer.say(HELLO)
        for _ in range(100):
            await asyncio.sleep(0)
        await peer.say(Goodbye("enough"))
        assert await running == "the conversation is over"


async def test_a_peer_holds_little_besides_what_it_shares() -> None:
    async with joined() as (channel, _, peer):
        running = asyncio.create_task(channel.run(flooding(channel)))
        await peer.say(HELLO)
        while channel.connection.bytes_queued == 0:
            await asyncio.sleep(0)
        assert channel.private_bytes <= module.WRITE_BYTES + HEADER_BYTES
        assert {id(parcel) for parcel in channel.connection.parcels()} == {id(PARCEL)}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_flood_is_told_from_other_faults() -> None:
    for data, is_flood in ((pack(Ping()).frame(0) * 1000, True), (bytes(100), False)):
        async with joined() as (channel, _, peer):
            running = asyncio.create_task(channel.run(ignore))
            await peer.say(HELLO)
            await peer.write(data)
            await running
            assert channel.has_flooded is is_flood


async def test_others_have_their_turn_while_one_peer_takes_without_end() -> None:
    turns = 0
    here, there = MemoryStream.pair(2**30)
    server, client = Connection("server", now=time.monotonic()), Connection("client", now=time.monotonic())
    channel = Channel(server, here, max_queued_bytes=2**30)
    client.send(HELLO)
    there.write(client.data_to_send())
    client.state = State.PROVEN
    running = asyncio.create_task(channel.run(flooding(channel)))
    other = asyncio.create_task(Channel(client, there, max_queued_bytes=2**30).run(ignore))
    while sum(parcel is PARCEL for parcel in server.parcels()) or not server.bytes_out:
        await asyncio.sleep(0)
        turns += 1
    assert turns > N_BLOCKS * MIB // module.WRITE_BYTES // 4
    for task in (running, other):
        task.cancel()
    await asyncio.gather(running, other, return_exceptions=True)


async def test_a_peer_for_which_no_more_than_that_waits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
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


async def test_a_socket_does_not_outlive_its_channel_by_a_peer_that_never_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "STALL_S", 0.1)
    async with joined() as (channel, writer, peer):
        running = asyncio.create_task(channel.run(flooding(channel)))
        await peer.say(HELLO)
        await running
        assert writer.transport.get_write_buffer_size() == 0
        await asyncio.wait_for(closed(writer), SOON_S)
        assert (channel.connection.bytes_queued, list(channel.connection.parcels())) == (0, [])


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


async def test_others_have_their_turn_while_one_peer_sends_without_end() -> None:
    turns = 0
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


async def test_something_waits_from_when_it_began_until_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.0)
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

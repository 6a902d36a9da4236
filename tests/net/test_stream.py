"""What every line promises, in memory and over a socket."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from fedlearn.net.address import Address, fingerprint_of
from fedlearn.net.stream import Stream
from fedlearn.net.tcp import PIECE_BYTES, READ_LIMIT_BYTES, UNSENT_BYTES, TcpStream
from fedlearn.net.tls import client_context, make_certificate, read_certificate, server_context
from tests.net.memory_stream import MemoryStream

Line = Callable[[], AbstractAsyncContextManager[tuple[Stream, Stream]]]
MIB = 2**20


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[Stream, Stream]]:
    yield MemoryStream.pair()


@asynccontextmanager
async def over_tcp(
    server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Stream, Stream]]:
    accepted: asyncio.Future[TcpStream] = asyncio.get_running_loop().create_future()
    listener = await asyncio.start_server(
        lambda reader, writer: accepted.set_result(TcpStream(reader, writer)),
        "127.0.0.1",
        0,
        limit=READ_LIMIT_BYTES,
        ssl=server,
    )
    host, port = listener.sockets[0].getsockname()
    ends = TcpStream(*await asyncio.open_connection(host, port, ssl=client)), await accepted
    try:
        yield ends
    finally:
        for end in ends:
            end.abort()
        listener.close()
        for _ in range(3):
            await asyncio.sleep(0)  # in which asyncio lets go of the sockets


@pytest.fixture(params=["memory", "tcp", "tls"])
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Line:
    if request.param == "memory":
        return in_memory
    if request.param == "tcp":
        return over_tcp
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(make_certificate())
    address = Address("127.0.0.1", 1, True, fingerprint_of(read_certificate(certificate)))
    return partial(over_tcp, server_context(certificate, certificate), client_context(address))


async def read_all(stream: Stream) -> bytearray:
    arrived = bytearray()
    while data := await stream.read(MIB):
        arrived += data
    return arrived


async def test_bytes_arrive_in_order_both_ways_and_end(line: Line) -> None:
    async with line() as ends:
        for here, there in (ends, ends[::-1]):
            sent = [bytes([number]) * (number * 997) for number in range(40)]
            for data in sent:
                here.write(data)
            here.write(b"end")
            arrived = b""
            while not arrived.endswith(b"end"):
                arrived += await there.read(4099)
            assert arrived == b"".join(sent) + b"end"
            await here.drain()
            assert here.unsent_bytes == 0


async def test_read_gives_no_more_than_asked_for(line: Line) -> None:
    async with line() as (here, there):
        here.write(b"12345")
        assert await there.read(2) == b"12"
        assert await there.read(9) == b"345"


async def test_what_is_not_taken_stays_and_drain_waits_for_it(line: Line) -> None:
    async with line() as (here, there):
        n_written = 0
        while here.unsent_bytes == 0:
            here.write(bytes(MIB))
            n_written += MIB
        draining = asyncio.create_task(here.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        arrived = 0
        while arrived < n_written:
            arrived += len(await there.read(MIB))
        await draining
        assert here.unsent_bytes == 0


async def test_close_sends_what_was_written_first(line: Line) -> None:
    async with line() as (here, there):
        here.write(bytes(4 * MIB))
        here.close()
        assert len(await read_all(there)) == 4 * MIB


async def test_abort_drops_what_has_not_left(line: Line) -> None:
    async with line() as (here, there):
        n_written = 0
        while here.unsent_bytes == 0:
            here.write(bytes(MIB))
            n_written += MIB
        here.abort()
        assert len(await read_all(there)) < n_written
        assert here.unsent_bytes == 0


async def test_closing_again_and_aborting_after_that_does_no_harm(line: Line) -> None:
    async with line() as (here, there):
        here.write(b"last words")
        for _ in range(3):
            here.close()
            assert here.unsent_bytes >= 0
        assert await read_all(there) == b"last words"
        here.abort()
        here.abort()
        here.close()


async def test_drain_ends_with_the_line(line: Line) -> None:
    async with line() as (here, there):
        while here.unsent_bytes == 0:
            here.write(bytes(MIB))
        there.abort()
        with pytest.raises(OSError, match=r".+"):
            await here.drain()


async def test_both_ends_know_who_is_at_the_other(line: Line) -> None:
    async with line() as ends:
        assert {end.peer_address for end in ends} <= {"127.0.0.1", "memory"}


async def test_a_socket_copies_nothing_aside_that_the_system_does_not_take() -> None:
    async with over_tcp() as (here, _):
        assert isinstance(here, TcpStream)
        assert here._writer.transport.get_write_buffer_limits() == (0, 0)


async def test_system_takes_little_ahead_of_a_slow_line() -> None:
    async with over_tcp() as (stream, _):
        assert isinstance(stream, TcpStream)
        line = stream._writer.get_extra_info("socket")
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES


async def test_a_socket_gives_what_comes_at_once_in_small_pieces_and_read_waits_for_the_end() -> None:
    async with over_tcp() as (here, there):
        pieces: list[bytes] = []
        assert there.push_to(pieces.append)
        reading = asyncio.create_task(there.read(MIB))
        sent = [bytes([number]) * (number * 9973) for number in range(40)]
        for data in sent:
            here.write(data)
            await here.drain()
        assert not reading.done()
        here.close()
        assert await reading == b""
        assert b"".join(pieces) == b"".join(sent)
        assert max(map(len, pieces)) <= PIECE_BYTES


async def test_pieces_belong_to_who_is_given_them() -> None:
    async with over_tcp() as (here, there), over_tcp() as (other, one):
        pieces: list[bytes] = []
        for end in (there, one):
            assert end.push_to(pieces.append)
        for end, data in ((here, b"first"), (other, b"second")):
            end.write(data)
            await end.drain()
            while data not in pieces:
                await asyncio.sleep(0)
        assert pieces == [b"first", b"second"]


async def test_drain_waits_as_before_where_what_comes_is_pushed() -> None:
    async with over_tcp() as (here, there):
        assert here.push_to(lambda _: None)
        n_written = 0
        while here.unsent_bytes == 0:
            here.write(bytes(MIB))
            n_written += MIB
        draining = asyncio.create_task(here.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        while n_written:
            n_written -= len(await there.read(MIB))
        await draining


async def test_a_broken_line_breaks_the_read_that_waits_for_its_end() -> None:
    async with over_tcp() as (here, there):
        assert there.push_to(lambda _: None)
        assert isinstance(here, TcpStream)
        line = here._writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        here.abort()
        with pytest.raises(ConnectionResetError):
            await there.read(MIB)


async def test_nothing_is_pushed_of_a_line_in_memory_or_twice_or_after_the_end() -> None:
    async with in_memory() as (here, _):
        assert not here.push_to(lambda _: None)
    async with over_tcp() as (here, there):
        assert there.push_to(lambda _: None)
        assert not there.push_to(lambda _: None)
        there.close()
        assert await here.read(1) == b""
        assert not here.push_to(lambda _: None)

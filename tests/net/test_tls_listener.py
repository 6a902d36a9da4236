import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fedlearn.net import tls_listener as module
from fedlearn.net.address import Address, fingerprint_of
from fedlearn.net.dialing import dial
from fedlearn.net.tls import make_certificate, read_certificate, server_context
from fedlearn.net.tls_listener import TlsListener
from tests.net.peers import SOON_S, closed, others_ended


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.pem"
    path.write_bytes(make_certificate())
    return path


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(5))
    writer.close()
    await closed(writer)


@asynccontextmanager
async def listening(own: Path) -> AsyncIterator[tuple[TlsListener, Address]]:
    raw = socket.create_server(("127.0.0.1", 0))
    address = Address("127.0.0.1", raw.getsockname()[1], True, fingerprint_of(read_certificate(own)))
    listener = TlsListener(answer, raw, server_context(own, own), limit=65536)
    try:
        yield listener, address
    finally:
        listener.close()
        await others_ended()


async def is_answered(address: Address) -> None:
    line = await asyncio.wait_for(dial(address), SOON_S)
    line.writer.write(b"hello")
    assert await line.reader.readexactly(5) == b"hello"
    line.writer.close()
    await closed(line.writer)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_so():
            await asyncio.sleep(0)


async def test_callers_are_answered_one_after_the_other(own: Path) -> None:
    async with listening(own) as (listener, address):
        for _ in range(3):
            await is_answered(address)
        await until(lambda: listener.n_handshakes == 0)


async def test_callers_that_never_shake_hands_are_given_up_for_those_who_do(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HANDSHAKES", 4)
    async with listening(own) as (listener, address):
        silent = [socket.create_connection((address.host, address.port)) for _ in range(20)]
        try:
            await is_answered(address)
            assert listener.n_handshakes <= 4
            for line in silent[:16]:
                line.setblocking(False)
                assert await asyncio.wait_for(gone(line), SOON_S)
        finally:
            for line in silent:
                line.close()


async def gone(line: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(line, 1) == b""
    except ConnectionResetError:
        return True


async def test_handshake_that_does_not_end_is_given_up(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.05)
    async with listening(own) as (listener, address):
        with socket.create_connection((address.host, address.port)) as line:
            line.setblocking(False)
            assert await asyncio.wait_for(gone(line), SOON_S)
        await until(lambda: listener.n_handshakes == 0)


async def test_caller_without_tls_ends_only_itself(own: Path) -> None:
    async with listening(own) as (_, address):
        with socket.create_connection((address.host, address.port)) as line:
            line.sendall(b"GET / HTTP/1.1\r\n\r\n")
            line.setblocking(False)
            assert await asyncio.wait_for(gone(line), SOON_S)
        await is_answered(address)


async def test_listening_goes_on_after_the_system_had_no_socket_left(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    loop = asyncio.get_running_loop()
    accept, refusals = loop.sock_accept, iter([OSError(24, "Too many open files")] * 3)

    async def refuse(sock: socket.socket) -> object:
        for refusal in refusals:
            raise refusal
        return await accept(sock)

    monkeypatch.setattr(loop, "sock_accept", refuse)
    async with listening(own) as (_, address):
        await is_answered(address)


async def test_nobody_is_heard_once_it_is_closed(own: Path) -> None:
    async with listening(own) as (listener, address):
        with socket.create_connection((address.host, address.port)) as line:
            await until(lambda: listener.n_handshakes == 1)
            listener.close()
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await dial(address)  # at once, when the event loop has not heard of the end yet
            line.setblocking(False)
            assert await asyncio.wait_for(gone(line), SOON_S)

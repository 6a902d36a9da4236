"""The client's end of a line, with a server that says what a test wants, or none."""

import asyncio
import socket
import time

import pytest

from fedlearn.client import line as module
from fedlearn.client.line import ServerLine
from fedlearn.coordination.effects import Leave
from fedlearn.net.address import Address
from fedlearn.wire.messages import Goodbye, Message
from tests.patience import LIMIT_S


async def says_nothing(nonce: bytes, binding: bytes) -> None:
    del nonce, binding


def ignore(message: Message) -> None:
    del message


def line_to(address: Address) -> ServerLine:
    return ServerLine(address, max_snapshot_bytes=2**20)


async def test_nobody_at_the_address_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()

    with pytest.raises(OSError, match="Connect call failed"):
        await line_to(Address(host, port)).converse(says_nothing, ignore)


async def test_address_that_swallows_what_it_is_sent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", never)
    monkeypatch.setattr(module, "CONNECT_S", 0.01)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await line_to(Address("203.0.113.1", 1)).converse(says_nothing, ignore)
    assert time.monotonic() < began + LIMIT_S


async def test_what_is_sent_before_there_is_a_line_goes_nowhere() -> None:
    line_to(Address("localhost", 1)).send(Goodbye("nobody hears it"))


async def test_first_reason_to_leave_is_the_one_that_counts() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        line = line_to(Address(*listener.sockets[0].getsockname()))
        conversing = asyncio.create_task(line.converse(says_nothing, ignore))
        before = line.is_over
        for reason in ("first", "second"):
            line.left(Leave(reason, is_welcome_back=True, is_refusal=False))
        assert (before, line.is_over) == (False, True)
        assert (await conversing).reason == "first"

import asyncio
import http.client
import logging
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from fedlearn.board.serving import server_of
from fedlearn.web.streams import CLOSING, Endless, WithClosing, until


class Pieces:
    """Numbers as pieces, and then nothing for ever."""

    def __init__(self, n: int) -> None:
        self.n, self.is_closed = n, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self.n):
                yield b"%d\n" % number
            await asyncio.Event().wait()
        finally:
            self.is_closed = True


def test_a_stream_that_is_not_closed_ends_as_its_pieces_do() -> None:
    async def some() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def read() -> list[object]:
        found: list[object] = [piece async for piece in until(asyncio.Event(), some())]
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1  # nothing waits on
        return found

    assert asyncio.run(read()) == [b"a", b"b"]


def test_an_error_of_a_stream_is_its_readers() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        raise ConnectionResetError

    async def read() -> None:
        async for _ in until(asyncio.Event(), broken()):
            pass

    with pytest.raises(ConnectionResetError):
        asyncio.run(read())


@pytest.mark.parametrize("is_closed_first", [False, True])
def test_a_stream_ends_when_its_server_closes(is_closed_first: bool) -> None:
    async def read() -> tuple[list[object], bool]:
        pieces, closing, found = Pieces(0 if is_closed_first else 2), asyncio.Event(), list[object]()
        if is_closed_first:
            closing.set()
        async for piece in until(closing, aiter(pieces)):
            found.append(piece)
            if len(found) == 2:
                asyncio.get_running_loop().call_soon(closing.set)
        return found, pieces.is_closed

    found, is_closed = asyncio.run(read())
    assert found == ([] if is_closed_first else [b"0\n", b"1\n"])
    assert is_closed


def test_a_reader_that_leaves_closes_what_it_read() -> None:
    async def read() -> bool:
        pieces = Pieces(1)
        reading = until(asyncio.Event(), aiter(pieces))
        assert await anext(reading) == b"0\n"
        following = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait({following})
        return pieces.is_closed

    assert asyncio.run(read())


def test_without_a_server_a_stream_is_one_of_starlettes() -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    sent = list[Message]()

    async def answer() -> None:
        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await Endless(two())({"type": "http", "asgi": {}}, receive, send)

    asyncio.run(answer())
    assert [message.get("body") for message in sent] == [None, b"a", b"b", b""]


def test_requests_are_told_of_the_event() -> None:
    closing, seen = asyncio.Event(), list[object]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope[CLOSING])

    asyncio.run(WithClosing(app, closing)({}, None, None))  # type: ignore[arg-type]
    assert seen == [closing]


def test_a_server_that_ends_closes_its_streams_whole_and_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert Request(scope).url.path == "/"
            await Endless(aiter(Pieces(1)))(scope, receive, send)

    async def serve() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = server_of(app, listening)
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            line = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=30)

            def begin() -> http.client.HTTPResponse:
                line.request("GET", "/")
                return line.getresponse()

            answer = await asyncio.to_thread(begin)
            assert await asyncio.to_thread(answer.readline) == b"0\n"
            server.should_exit = True
            rest = await asyncio.to_thread(answer.read)  # of a stream that is cut off it is an IncompleteRead
            await serving
            line.close()
            answer.close()
            return rest

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(serve()) == b""
    assert caplog.messages == []

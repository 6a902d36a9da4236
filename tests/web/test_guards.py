"""The time that a client may take to send and to read, with limits that are over at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Scope

from fedlearn.web import guards
from fedlearn.web.guards import RequestGuard
from fedlearn.web.names import Names
from tests.patience import LIMIT_S

SCOPE: Scope = {
    "type": "http",
    "method": "POST",
    "path": "/",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1:80")],
    "client": ("127.0.0.1", 5),
}
PIECE: Message = {"type": "http.request", "body": b"{", "more_body": True}
END: Message = {"type": "http.request", "body": b"}", "more_body": False}


async def forever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("it lasts")


def asked(
    messages: list[Message], answer: Callable[[Request], Awaitable[Response]], *, reads: bool = True
) -> list[Message]:
    """What is sent to a client that sends these messages and then nothing, and reads or does not."""
    inner = Starlette(routes=[Route("/", answer, methods=["POST"])])
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else await forever()

    async def send(message: Message) -> None:
        if not reads and message["type"] == "http.response.body":
            await forever()
        sent.append(message)

    guarded = RequestGuard(inner, Names(80, is_public=False))(dict(SCOPE), receive, send)
    asyncio.run(asyncio.wait_for(guarded, LIMIT_S))
    return sent


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def late(request: Request) -> Response:
    """Answers where a client that has sent all is still there after the time of a request."""
    await request.body()
    leaving = asyncio.ensure_future(request.receive())
    for _ in range(10):
        await asyncio.sleep(0)  # a turn of the loop, in which a limit would end it
    assert not leaving.done()
    leaving.cancel()
    return PlainTextResponse("still there")


def test_request_whose_body_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "REQUEST_S", 0.0)
    begin, _ = asked([PIECE], echo)
    assert begin["status"] == 408
    assert (b"connection", b"close") in begin["headers"]


def test_request_that_has_all_come_has_no_limit_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "REQUEST_S", 0.0)
    begin, body = asked([PIECE, END], late)
    assert (begin["status"], body["body"]) == (200, b"still there")


def test_answer_that_nobody_reads_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "READING_S", 0.0)
    (begin,) = asked([PIECE, END], echo, reads=False)
    assert begin["status"] == 200


def test_error_of_the_application_is_none_of_the_guards() -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError(request.url.path)

    with pytest.raises(RuntimeError, match="/"):
        asked([END], fail)

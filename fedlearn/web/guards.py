"""Headers of all answers, checks of a request's origin, and limits on the requests of an address and on their time.

Uvicorn has no public way to limit the connections of an address, or the time of a request's headers: that is the
business of a reverse proxy, which a page for strangers needs for its certificate, too.
"""

import asyncio
import time
from typing import final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.web.names import Names
from fedlearn.wire.networks import network_of

REQUESTS_PER_MINUTE = 3000
"""Requests a minute of one address; a page makes about ten when it is opened, and a whole office may share an address.
"""

REQUEST_S = 15.0
"""Seconds for a request's body."""

READING_S = 30.0
"""Seconds within which a client must read a piece of an answer, beyond what the system holds for it."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


_MISDIRECTED = 421


def network(scope: Scope) -> str:
    """The network for which a request counts."""
    return network_of(scope["client"][0] if scope.get("client") else "")


@final
class RequestGuard:
    """Guards an application."""

    def __init__(self, app: ASGIApp, names: Names, *, requests_per_minute: int = REQUESTS_PER_MINUTE) -> None:
        self._app = app
        self._names = names
        self._requests = RateLimit(requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        exchange = _Exchange(receive, send)
        host = Headers(scope=scope).get("host", "")
        if not self._requests.take(network(scope), time.monotonic()):
            answer: ASGIApp = too_many("requests from your address")
        elif not self._names.has(host):
            answer = PlainTextResponse(self._names.refusal(host), _MISDIRECTED)
        else:
            answer = self._app
        try:
            await answer(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_unread:
                raise


@final
class _Exchange:
    """The messages of one request and its answer, each of which must come, or be read, in time."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._due = time.monotonic() + REQUEST_S
        self._is_whole = False
        self.is_unread = False
        """True once the client has not read a piece of the answer in time."""

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()  # which lasts until the client leaves
        try:
            async with asyncio.timeout(max(self._due - time.monotonic(), 0.0)):
                message = await self._receive()
        except TimeoutError:
            late = f"expected the whole request within {REQUEST_S:.0f} s"
            raise HTTPException(408, late, {"Connection": "close"}) from None
        self._is_whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        try:
            async with asyncio.timeout(READING_S):
                await self._send(message)
        except TimeoutError:
            self.is_unread = True
            raise


def too_many(what: str) -> PlainTextResponse:
    """The answer to an address that requests too much."""
    return PlainTextResponse(f"too many {what}; try again in a minute", 429, {"Retry-After": "60"})

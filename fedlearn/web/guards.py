"""Headers of all answers, checks of a request's origin, and limits on the requests of an address."""

import time
from typing import final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.web.names import Names
from fedlearn.wire.networks import network_of

REQUESTS_PER_MINUTE = 3000
"""Requests a minute of one address; a page makes about ten when it is opened, and a whole office may share an address.
"""

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

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not self._requests.take(network(scope), time.monotonic()):
            answer: ASGIApp = too_many("requests from your address")
        elif not self._names.has(host):
            answer = PlainTextResponse(self._names.refusal(host), _MISDIRECTED)
        else:
            answer = self._app
        await answer(scope, receive, send_guarded)


def too_many(what: str) -> PlainTextResponse:
    """The answer to an address that requests too much."""
    return PlainTextResponse(f"too many {what}; try again in a minute", 429, {"Retry-After": "60"})

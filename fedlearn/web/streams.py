"""Streams that have no end of their own: they end with the server, so that readers get whole answers, and no error is
logged."""

import asyncio
from collections.abc import AsyncIterator
from typing import final

from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CLOSING = "fedlearn.closing"
"""The key of a request's scope for the event that its server is about to close."""


@final
class Endless(StreamingResponse):
    """A stream that ends when its server closes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if CLOSING in scope:
            self.body_iterator = until(scope[CLOSING], aiter(self.body_iterator))
        await super().__call__(scope, receive, send)


async def until(
    closing: asyncio.Event, pieces: AsyncIterator[str | bytes | memoryview]
) -> AsyncIterator[str | bytes | memoryview]:
    """The pieces that come before the event is set."""
    waiting = asyncio.ensure_future(closing.wait())
    following: asyncio.Future[str | bytes | memoryview | None] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(pieces, None))
            await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done() or (piece := following.result()) is None:
                return
            yield piece
    finally:
        waiting.cancel()
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait({following})


@final
class WithClosing:
    """An app whose requests know when the server is about to close."""

    def __init__(self, app: ASGIApp, closing: asyncio.Event) -> None:
        self._app, self._closing = app, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CLOSING] = self._closing
        await self._app(scope, receive, send)

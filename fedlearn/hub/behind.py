"""The board, behind the hub's door."""

from typing import final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fedlearn.hub.bodies import RefusedError
from fedlearn.hub.door import Door
from fedlearn.hub.errors import error_of

GUARDED = ("/api/", "/metrics")
"""What says something about runs; the page itself says nothing."""


@final
class Behind:
    """Lets operators through to an application."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Request(scope)
        if asked.url.path.startswith(GUARDED):
            try:
                self._door.check(asked, "operator")
            except RefusedError as error:
                await error_of(error.status, error.text)(scope, receive, send)
                return
        await self._app(scope, receive, send)

"""Authentication of every request to the hub, in one place so that no address is forgotten."""

from typing import final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fedlearn.hub.bodies import RefusedError
from fedlearn.hub.errors import error_of
from fedlearn.hub.tokens import Role, TokenAuthentication

GUARDED = ("/api", "/metrics")
"""Addresses that read or change data; the pages themselves are the same for everybody."""

DEVICES = "/api/devices/"


@final
class AuthenticationMiddleware:
    """Wraps an application, and passes on requests that are authenticated."""

    def __init__(self, app: ASGIApp, door: TokenAuthentication) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (role := role_for(scope["method"], scope["path"])) is not None:
            try:
                self._door.check(Request(scope), role)
            except RefusedError as error:
                await error_of(error.status, error.text)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def role_for(method: str, path: str) -> Role | None:
    """The role that may make this request; None: everybody may."""
    if not path.startswith(GUARDED):
        return None
    if not path.startswith(DEVICES):
        return "operator"
    rest = path.removeprefix(DEVICES)
    is_own = (
        (method == "POST" and rest == "register")
        or (method == "GET" and rest.endswith("/work"))
        or (method == "POST" and rest.partition("/")[2].startswith("calls/"))
        or (method == "POST" and rest.endswith("/log"))
        or (method == "DELETE" and "/" not in rest)
    )
    return "device" if is_own else "operator"

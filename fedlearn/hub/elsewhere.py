"""Answers for addresses that the hub does not have, or not for the method of a request."""

from collections.abc import Sequence
from typing import final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fedlearn.hub.errors import error_of

MAX_SHOWN = 100
"""The most characters of an address that an answer repeats."""


@final
class Elsewhere:
    """Answers with the methods that an address has, or that there is no such address."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, shown = scope["path"], scope["path"][:MAX_SHOWN]
        found = [route.methods or set() for route in self._routes if route.path_regex.match(path)]
        methods = sorted(set[str]().union(*found) - {"HEAD"})
        if methods:
            answer = error_of(405, f"{shown}: expected {' or '.join(methods)}, got {scope['method'][:MAX_SHOWN]}")
            answer.headers["Allow"] = ", ".join(methods)
        else:
            answer = error_of(404, f"{shown}: no such address; docs/hub.md lists those of a hub")
        await answer(scope, receive, send)

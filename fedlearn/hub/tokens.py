"""Authentication of requests to a hub: by a token, or since they come from this machine."""

import hmac
import time
from typing import Literal, final

from starlette.requests import Request

from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.hub.bodies import RefusedError
from fedlearn.net.address import is_loopback
from fedlearn.web.guards import network
from fedlearn.web.names import Names

GUESSES_PER_MINUTE = 10
"""The number of wrong tokens that one address may send in a minute."""

COOKIE = "fedlearn-hub"
"""The cookie with an operator's token: a page can't put the token into the headers of its streams and downloads."""

FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that a proxy on this machine adds; requests behind a proxy may come from anywhere."""

Role = Literal["operator", "device"]


@final
class TokenAuthentication:
    """Authenticates requests with the token of a role; an operator may do all that a device may."""

    def __init__(self, *, operator_token: str, device_token: str, open_to: Names | None) -> None:
        """`open_to` are the names under which requests from this machine need no token; None: all need one."""
        self._tokens: dict[Role, tuple[bytes, ...]] = {
            "operator": (operator_token.encode(),),
            "device": (operator_token.encode(), device_token.encode()),
        }
        self._open_to = open_to
        self._guesses = RateLimit(GUESSES_PER_MINUTE)

    def check(self, asked: Request, role: Role) -> None:
        """Checks the token of a request.

        Raises:
            RefusedError: the request has no valid token, or follows too many of these.
        """
        if self._open_to is not None and is_of_this_machine(asked, self._open_to):
            return
        given = _given(asked)
        if any(hmac.compare_digest(given, token) for token in self._tokens[role]):
            return
        if given and not self._guesses.take(network(asked.scope), time.monotonic()):
            raise RefusedError(429, "too many wrong tokens; try again in a minute")
        expected = f"expected the header 'Authorization: Bearer TOKEN' with the hub's token for {role}s"
        page = "; a browser has it from the address that the hub printed, which ends in #token=TOKEN"
        raise RefusedError(401, expected + page * (role == "operator"))


def is_of_this_machine(asked: Request, names: Names) -> bool:
    """Whether a request was made on this machine, but not by a page of another site in a browser.

    Such a page's name resolves to this machine if its owner wants that, but stays its name; and a page of another
    origin says its origin.
    """
    headers = asked.headers
    host = headers.get("host", "")
    if asked.client is None or not is_loopback(asked.client.host) or any(name in headers for name in FORWARDED):
        return False
    if len(headers.getlist("host")) != 1 or not names.has(host):
        return False
    return headers.get("origin", f"http://{host}") == f"http://{host}"


def _given(asked: Request) -> bytes:
    scheme, _, token = asked.headers.get("authorization", "").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else asked.cookies.get(COOKIE, "")
    return given.encode(errors="replace")

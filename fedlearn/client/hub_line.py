"""A device's requests to a hub, over HTTP: the device asks, and is never called."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any, Literal, final
from urllib.parse import urlsplit

import msgspec

from fedlearn.net.address import is_loopback, parse_address
from fedlearn.net.silence import why_silent

DEFAULT_PORT = 4000
TIMEOUT_S = 30.0
"""Timeout of a request in seconds, longer than a hub lets a device wait for work."""

MAX_ANSWER_BYTES = 2**21


class HubError(Exception):
    """The hub refused."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HubAwayError(Exception):
    """No hub answered."""


class AskedVerb(msgspec.Struct, frozen=True):
    """A verb that the device is asked to call."""

    call_id: int
    verb: str
    arguments: dict[str, Any]


class Work(msgspec.Struct, frozen=True):
    """The task of a device: join a server, wait, or leave, since the job that it registered for has ended."""

    state: Literal["join", "wait", "leave"]
    job_id: int | None = None
    server: str = ""
    calls: tuple[AskedVerb, ...] = ()


def hub_url(text: str) -> str:
    """The address of a hub, from a URL, HOST:PORT or HOST.

    Raises:
        ValueError: the text is something else.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.username is not None:
        raise ValueError(f"--hub: expected a URL such as http://HOST:{DEFAULT_PORT}, got {text!r}")
    if "://" not in text and port is None:
        url = f"{url.rstrip('/')}:{DEFAULT_PORT}"
    return url.rstrip("/")


@final
class HubLine:
    """Requests to one hub, with the token for devices where one is given.

    Raises:
        HubError: the hub refuses any request.
        HubAwayError: no hub answers any request.
    """

    def __init__(self, url: str, token: bytes) -> None:
        self.url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": "fedlearn"}
        if token:
            self._headers["Authorization"] = f"Bearer {token.decode(errors='replace')}"
        # Requests to this machine go to no proxy, as those of a volunteer.
        host = urlsplit(url).hostname or ""
        handlers = [urllib.request.ProxyHandler({})] if is_loopback(host) else []
        self._opener = urllib.request.build_opener(*handlers, _NoRedirect())

    def register(self, name: str, job_id: int | None, verbs: Sequence[str] = (), port: int = 0) -> int:
        """Registers this device, with the verbs that may be called; gives its number, which is `port`
        unless that is 0."""
        body: dict[str, Any] = {"name": name} | ({} if job_id is None else {"job_id": job_id})
        body |= ({"verbs": list(verbs)} if verbs else {}) | ({"port": port} if port else {})
        answer = self._ask("POST", "/api/devices/register", body)
        if not isinstance(answer, dict) or not isinstance(answer.get("device_id"), int):
            raise HubAwayError("expected a hub's answer, got another")
        return int(answer["device_id"])

    def work(self, device: int, *, has: str) -> Work:
        """Asks for this device's work while it has joined the server `has`; waits for something new."""
        query = urllib.parse.urlencode({"has": has})
        answer = self._ask("GET", f"/api/devices/{device}/work?{query}")
        try:
            work = msgspec.convert(answer, Work)
            # What it names becomes an argument of a program: nothing but an address ever does.
            return msgspec.structs.replace(work, server=str(parse_address(work.server)) if work.server else "")
        except ValueError as error:
            raise HubAwayError(f"expected a hub's answer, got another: {error}") from error

    def answer(self, device: int, call: int, *, code: int | None, output: str) -> None:
        """Answers a call of a verb."""
        self._ask("POST", f"/api/devices/{device}/calls/{call}", {"code": code, "output": output})

    def say(self, device: int, lines: Sequence[str]) -> None:
        """Adds lines to the device's log at the hub."""
        self._ask("POST", f"/api/devices/{device}/log", {"lines": list(lines)})

    def unregister(self, device: int, *, timeout_s: float) -> None:
        """Tells the hub that the device is gone."""
        self._ask("DELETE", f"/api/devices/{device}", timeout_s=timeout_s)

    def _ask(self, method: str, path: str, body: object = None, *, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=self._headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                return _read(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                said = _read(error.read(MAX_ANSWER_BYTES))
            text = said.get("error") if isinstance(said, dict) else None
            if text is None or error.code >= 500:
                raise HubAwayError(f"{self.url} answered {error.code}") from error
            raise HubError(error.code, str(text)) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = why_silent(reason, urlsplit(self.url).netloc) if isinstance(reason, OSError) else reason
            raise HubAwayError(f"no hub answers at {self.url}: {why}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: no hub sends them, and the token is for the hub alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        return None


def _read(body: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HubAwayError("expected a hub's answer, got another") from error

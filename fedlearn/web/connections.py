"""Limits on connections: on their number, and on the time that they take to ask and to read.

Uvicorn waits for the rest of a request, and for a reader, as long as they like. Where an address has all connections
that it may have, a new one takes the place of the one that has asked nothing for longest, or that does not read: so
nobody locks others out by holding connections.
"""

import asyncio
import ipaddress
from typing import Any, final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fedlearn.web.quotas import NOBODY, Quota
from fedlearn.wire.networks import network_of

REQUEST_S = 15.0
"""Seconds for a whole request, from its connection on or from its first byte."""

READING_S = 30.0
"""Seconds within which bytes that were written at once must be read: 64 KiB of a download, so about 2 KiB a second."""

MAX_CONNECTIONS = 1000
MAX_OF_ADDRESS = 160
"""The most connections of an address: streams of as many viewers as one may have, and the requests of their pages."""

_ASKING = (h11.IDLE, h11.SEND_BODY)
"""States of a peer that has sent no request, or half of one."""

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


@final
class ConnectionLimiter:
    """Makes the protocols of a server, and limits their number."""

    def __init__(self, *, proxies: Networks = (), total: int = MAX_CONNECTIONS) -> None:
        self._proxies = proxies
        self.places = Quota(total, of_one=MAX_OF_ADDRESS)
        self._inside: dict[TimeoutProtocol, None] = {}
        """The connections; those that sent a request last are at the end."""

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        """Makes the protocol of one connection, as uvicorn calls it."""
        return TimeoutProtocol(H11Protocol(config, server_state, app_state, _loop), self)

    def enter(self, watched: "TimeoutProtocol", key: str) -> bool:
        """Admits a connection if its quota allows it; it keeps its slot until it leaves."""
        if not self.places.take(key):
            if (idle := self._idle(None if self.places.is_full else key)) is None:
                return False
            idle.leave()
            self.places.take(key)
        self._inside[watched] = None
        return True

    def asked(self, watched: "TimeoutProtocol") -> None:
        """Takes note that bytes came from a connection."""
        self._inside[watched] = self._inside.pop(watched)

    def left(self, watched: "TimeoutProtocol", key: str) -> None:
        """Frees the slot of a connection."""
        del self._inside[watched]
        self.places.free(key)

    def _idle(self, key: str | None) -> "TimeoutProtocol | None":
        """The idle connection of this key that may lose its slot (None: of the key with most); None where none is
        idle."""
        able = [watched for watched in self._inside if key is None or watched.key == key]
        idle = [watched for watched in able if not watched.is_answering] or [one for one in able if not one.is_read]
        return max(idle, key=lambda watched: self.places.taken_by(watched.key or NOBODY), default=None)

    def key_of(self, address: str) -> str:
        """The key for which a connection counts."""
        try:
            is_proxy = any(ipaddress.ip_address(address) in network for network in self._proxies)
        except ValueError:
            is_proxy = False
        return NOBODY if is_proxy else network_of(address)


@final
class TimeoutProtocol(asyncio.Protocol):
    """A connection of uvicorn's, which is cut when it takes too long."""

    def __init__(self, inner: H11Protocol, limiter: ConnectionLimiter) -> None:
        self._inner = inner
        self._limiter = limiter
        self.key: str | None = None
        """The address for which its slot counts; None where it has none."""
        self._is_known = False
        """Whether uvicorn has been told of it."""
        self._transport: asyncio.Transport | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a whole request came that is not answered yet."""
        return self._inner.conn.their_state not in _ASKING

    @property
    def is_read(self) -> bool:
        """Whether the peer reads the bytes that are written."""
        return self._reading is None

    def leave(self) -> None:
        """Ends the connection now."""
        assert self._transport is not None
        self._leave_place()
        self._transport.abort()

    def _leave_place(self) -> None:
        if self.key is not None:
            self._limiter.left(self, self.key)
            self.key = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        key = self._limiter.key_of(peer[0] if peer else "")
        if not self._limiter.enter(self, key):
            transport.abort()
            return
        self.key, self._is_known = key, True
        transport.set_write_buffer_limits(high=0)  # told as soon as anything waits to be read
        self._inner.connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self.key is None:
            return
        self._limiter.asked(self)
        self._inner.data_received(data)
        self._await_request()

    def eof_received(self) -> None:
        if self.key is not None:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._inner.pause_writing()
        self._reading = asyncio.get_running_loop().call_later(READING_S, self._transport.abort)

    def resume_writing(self) -> None:
        _stop(self._reading)
        self._reading = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._asking)
        _stop(self._reading)
        self._leave_place()
        if self._is_known:
            self._inner.connection_lost(exc)

    def _await_request(self) -> None:
        """Starts the timeout of an incomplete request, and stops it for a complete one."""
        assert self._transport is not None
        if self.is_answering:
            _stop(self._asking)
            self._asking = None
        elif self._asking is None:
            self._asking = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

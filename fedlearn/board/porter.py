"""What a connection may do before it is cut: come in numbers, be slow to ask, be slow to read.

Uvicorn waits for the rest of a request, and for a reader, as long as they like.
"""

import asyncio
import ipaddress
from typing import Any, final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fedlearn.board.places import NOBODY, Places
from fedlearn.wire.networks import network_of

REQUEST_S = 15.0
"""For a whole request, from its connection on or from its first byte."""

READING_S = 30.0
"""For what is written at once to be read: 64 KiB of a download, so about 2 KiB a second."""

MAX_CONNECTIONS = 1000
MAX_OF_ADDRESS = 160
"""Streams of as many viewers as one address may have, and what their pages fetch."""

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


@final
class Porter:
    """Makes the protocols of a server."""

    def __init__(self, *, proxies: Networks = (), total: int = MAX_CONNECTIONS) -> None:
        self._proxies = proxies
        self.places = Places(total, of_one=MAX_OF_ADDRESS)

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        """As uvicorn asks for one for each connection."""
        return Watched(H11Protocol(config, server_state, app_state, _loop), self)

    def key_of(self, address: str) -> str:
        """Whom a connection counts for."""
        try:
            is_proxy = any(ipaddress.ip_address(address) in network for network in self._proxies)
        except ValueError:
            is_proxy = False
        return NOBODY if is_proxy else network_of(address)


@final
class Watched(asyncio.Protocol):
    """A connection of uvicorn's, which is cut when it takes too long."""

    def __init__(self, inner: H11Protocol, porter: Porter) -> None:
        self._inner = inner
        self._porter = porter
        self._key: str | None = None
        """Of its place; None where it has none."""
        self._transport: asyncio.Transport | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        key = self._porter.key_of(peer[0] if peer else "")
        if not self._porter.places.take(key):
            transport.abort()
            return
        self._key = key
        transport.set_write_buffer_limits(high=0)  # told as soon as anything waits to be read
        self._inner.connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self._key is None:
            return
        self._inner.data_received(data)
        self._await_request()

    def eof_received(self) -> None:
        if self._key is not None:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._inner.pause_writing()
        self._reading = asyncio.get_running_loop().call_later(READING_S, self._transport.abort)

    def resume_writing(self) -> None:
        _stop(self._reading)
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._asking)
        _stop(self._reading)
        if self._key is not None:
            self._porter.places.free(self._key)
            self._inner.connection_lost(exc)

    def _await_request(self) -> None:
        """Starts the clock of a request that is not whole, and stops it for one that is."""
        assert self._transport is not None
        if self._inner.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            _stop(self._asking)
            self._asking = None
        elif self._asking is None:
            self._asking = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

"""The board's process from its first line to its last."""

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import final

import msgspec
import uvicorn
from starlette.types import ASGIApp

from fedlearn.board.app import Board
from fedlearn.net.address import ANY_ADDRESS, is_loopback
from fedlearn.server.security import own_address
from fedlearn.storage.credentials import exposure, keep_secret
from fedlearn.system.processes import open_files, step_back
from fedlearn.web.names import Names, is_address
from fedlearn.web.streams import WithClosing

TOKEN_FILE = "board-token"
NICENESS = 10
"""Niceness of a server's companion, since training goes first."""

SEND_BUFFER_BYTES = 128 * 1024
"""Size of a connection's send buffer in bytes; systems take twice as much."""

PARTING_S = 1
"""Seconds that answers have to end, beside streams, which end at once; viewers come back by themselves."""


Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses and names by which the page is reached."""

    host: str = "127.0.0.1"
    port: int = 0
    public_hosts: tuple[str, ...] = ()
    """Names that the board answers to, besides its addresses."""
    proxies: Networks = ()
    """Proxies whose `X-Forwarded-For` is believed."""

    def names(self, port: int) -> Names:
        """The names to which the board answers at this port."""
        # An address stands for itself, with its own port; what is given is answered to at any port.
        own = () if is_loopback(self.host) or is_address(self.host) else (self.host.lower(),)
        return Names(port, not is_loopback(self.host), (*self.public_hosts, *own))


def serve(root: Path, reach: Reach, *, is_companion: bool) -> int:
    """Serves until it is stopped, or, as a companion, until standard input ends.

    Raises:
        OSError: the port is in use.
    """
    family = socket.AF_INET6 if ":" in reach.host else socket.AF_INET
    with socket.create_server((reach.host, reach.port), family=family, backlog=512) as listening:
        token = _operators_token(root)
        port = listening.getsockname()[1]
        address = page_address(reach.host, port)
        if not token or not is_loopback(reach.host):
            print(f"see the runs in a browser: {address}", flush=True)
        if token:
            print(f"see, pause and stop runs in a browser: {address}#token={token}", flush=True)
            if warning := exposure(root / TOKEN_FILE, "board", "give orders to runs"):
                print(warning, flush=True)  # behind the address, which a server takes from the first line
        server = server_of(Board(root, token=token, names=reach.names(port)).app(), listening, reach.proxies)
        if is_companion:
            step_back(os.getpid(), NICENESS)
            threading.Thread(target=_leave_with_standard_input, args=(server,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listening]))
    return 0


def _operators_token(root: Path) -> str:
    """The token that authenticates an operator; empty, so that nobody is one, where these runs may be viewed but not
    changed."""
    try:
        return keep_secret(root / TOKEN_FILE, lambda: secrets.token_urlsafe(24).encode()).decode().strip()
    except OSError as error:
        print(f"board: {root} can't be written ({error.strerror}), so this page shows runs and changes none")
        return ""


def server_of(app: ASGIApp, listening: socket.socket, proxies: Networks = ()) -> uvicorn.Server:
    """Makes a server for this socket."""
    # Else the system keeps megabytes for each reader that does not read.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    open_files()  # raises the limit, since each connection is one
    closing = asyncio.Event()
    config = uvicorn.Config(
        WithClosing(app, closing),
        http="h11",  # it bounds headers
        log_level="error",
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[str(network) for network in proxies],
        timeout_graceful_shutdown=PARTING_S,
        server_header=False,
        ws="none",
    )
    return _Server(config, closing)


@final
class _Server(uvicorn.Server):
    """A server that ends its streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)


def page_address(host: str, port: int) -> str:
    """The address of the page for a browser, on another machine too where this one listens to all networks."""
    reachable = own_address() if host in ANY_ADDRESS else host
    return f"http://[{reachable}]:{port}/" if ":" in reachable else f"http://{reachable}:{port}/"


def _leave_with_standard_input(server: uvicorn.Server) -> None:
    """Ends the server with standard input, since the process that started it has ended."""
    sys.stdin.buffer.read()
    server.should_exit = True

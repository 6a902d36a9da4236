"""The board's process from its first line to its last."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import threading
from pathlib import Path

import uvicorn

from fedlearn.board.app import Board
from fedlearn.net.address import ANY_ADDRESS
from fedlearn.server.gate import own_address
from fedlearn.storage.credentials import keep_secret
from fedlearn.system.processes import step_back

TOKEN_FILE = "board-token"
NICENESS = 10
"""Niceness of a server's companion, since training goes first."""

PARTING_S = 1
"""Seconds that streams have to close; viewers come back by themselves."""


def serve(root: Path, *, host: str, port: int, is_companion: bool) -> int:
    """Serves until it is stopped, or, as a companion, until standard input ends.

    Raises:
        OSError: the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=512) as listening:
        token = keep_secret(root / TOKEN_FILE, lambda: secrets.token_urlsafe(24).encode()).decode().strip()
        address = page_address(host, listening.getsockname()[1])
        print(f"board: {address}")
        print(f"board, for you who may pause the run: {address}#token={token}", flush=True)
        config = uvicorn.Config(
            Board(root, token=token).app(),
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=PARTING_S,
            server_header=False,
            ws="none",
        )
        server = uvicorn.Server(config)
        if is_companion:
            step_back(os.getpid(), NICENESS)
            threading.Thread(target=_leave_with_standard_input, args=(server,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listening]))
    return 0


def page_address(host: str, port: int) -> str:
    """Where a browser finds the page, on another machine too where this one listens to all networks."""
    reachable = own_address() if host in ANY_ADDRESS else host
    return f"http://[{reachable}]:{port}/" if ":" in reachable else f"http://{reachable}:{port}/"


def _leave_with_standard_input(server: uvicorn.Server) -> None:
    """Whoever started it has ended, however that came about."""
    sys.stdin.buffer.read()
    server.should_exit = True

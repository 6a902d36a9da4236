"""The board's process from its first line to its last."""

import asyncio
import contextlib
import secrets
import socket
import sys
from pathlib import Path

import uvicorn

from fedlearn.board.app import Board
from fedlearn.storage.credentials import keep_secret

TOKEN_FILE = "board-token"
PARTING_S = 1
"""For streams to close; viewers come back by themselves."""


def serve(root: Path, *, host: str, port: int, is_companion: bool) -> int:
    """Serves until it is stopped, or, as a companion, until standard input ends. Raises OSError for a port in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=512) as listening:
        token = keep_secret(root / TOKEN_FILE, lambda: secrets.token_urlsafe(24).encode()).decode().strip()
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
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
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(server, listening, is_companion=is_companion))
    return 0


async def _serve(server: uvicorn.Server, listening: socket.socket, *, is_companion: bool) -> None:
    if is_companion:
        leaving = asyncio.create_task(_leave_with_standard_input(server))
        leaving.add_done_callback(lambda _: None)
    await server.serve(sockets=[listening])


async def _leave_with_standard_input(server: uvicorn.Server) -> None:
    """Whoever started it ended, however that came about."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
    server.should_exit = True

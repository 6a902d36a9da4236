"""A board that listens, in a thread of this process."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.types import ASGIApp

from fedlearn.board.app import Board
from fedlearn.board.serving import Networks, Reach, server_of
from tests.board.conftest import TOKEN


@contextmanager
def serving(app: ASGIApp, listening: socket.socket, proxies: Networks = ()) -> Iterator[None]:
    """Answers on the socket, in a thread."""
    server = server_of(app, listening, proxies)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def listening_board(root: Path, proxies: Networks = ()) -> Iterator[tuple[Board, int]]:
    """The board and its port on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        port: int = listening.getsockname()[1]
        board = Board(root, token=TOKEN, names=Reach().names(port))
        with serving(board.app(), listening, proxies):
            yield board, port

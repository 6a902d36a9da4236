"""Clients of a board that listens: one that does not read, and those that a proxy carries."""

import ipaddress
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedlearn.board import app
from fedlearn.board.app import Board
from fedlearn.runs.run import Run
from fedlearn.storage.checkpoint import checkpoint_at
from fedlearn.web import guards
from tests.board.live import listening_board
from tests.patience import LIMIT_S

SMALL = 4096
"""Of a receive buffer, so that few bytes wait on a reader's side."""


@contextmanager
def connected(port: int, *, says: bytes = b"", host: str = "127.0.0.1", buffer: int = SMALL) -> Iterator[socket.socket]:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.settimeout(LIMIT_S)
        line.connect((host, port))
        line.sendall(says)
        yield line


def request(port: int, path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n".encode()


def test_download_that_nobody_reads_is_cut_and_gives_its_place_back(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "READING_S", 0.5)
    checkpoint_at(run.folder, 5).write_bytes(bytes(8 * 2**20))
    with listening_board(root) as (_, port), ExitStack() as lines:
        begun = time.monotonic()
        for _ in range(app.DOWNLOADS_OF_ONE):
            lines.enter_context(connected(port, says=request(port, "/api/runs/1/weights")))
        while time.monotonic() < begun + LIMIT_S:
            with connected(port, says=request(port, "/api/runs/1/weights", "Connection: close\r\n")) as line:
                if line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200":
                    break
        assert time.monotonic() - begun < LIMIT_S


def streams_of(board: Board) -> dict[str, int]:
    return dict(board._streams._taken)


@pytest.mark.parametrize("is_trusted", [False, True])
def test_whom_a_proxy_carries_is_believed_only_of_one_that_is_trusted(root: Path, *, is_trusted: bool) -> None:
    proxies = (ipaddress.ip_network("127.0.0.0/8"),) if is_trusted else ()
    with listening_board(root, proxies) as (board, port), ExitStack() as lines:
        for number in (1, 1, 2):
            more = f"X-Forwarded-For: 198.51.100.9, 203.0.113.{number}\r\n"
            line = lines.enter_context(connected(port, says=request(port, "/api/events", more)))
            assert line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        expected = {"203.0.113.1": 2, "203.0.113.2": 1} if is_trusted else {"loopback": 3}
        assert streams_of(board) == expected


def test_one_address_holds_some_of_the_streams_and_another_one_still_gets_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAMS_OF_ONE", 2)
    with listening_board(root, (ipaddress.ip_network("127.0.0.1"),)) as (_, port), ExitStack() as lines:
        codes = []
        for address in ("203.0.113.1", "203.0.113.1", "203.0.113.1", "203.0.113.2"):
            says = request(port, "/api/events", f"X-Forwarded-For: {address}\r\n")
            line = lines.enter_context(connected(port, says=says))
            codes.append(line.recv(12, socket.MSG_WAITALL)[-3:])
        assert codes == [b"200", b"200", b"429", b"200"]

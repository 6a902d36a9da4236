"""Connections of a board that listens: what takes too long is cut, who reads is not."""

import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, final

import pytest

from fedlearn.board import app
from fedlearn.board.app import Board
from fedlearn.runs.run import Run
from fedlearn.storage.checkpoint import checkpoint_at
from fedlearn.web import connections as limiter
from fedlearn.web.quotas import Quota
from tests.board.live import listening_board

PATIENCE_S = 20.0
SMALL = 4096
"""Of a receive buffer, so that few bytes wait on a reader's side."""


@pytest.fixture
def port(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(limiter, "REQUEST_S", 0.5)
    monkeypatch.setattr(limiter, "READING_S", 0.5)
    with listening_board(root) as (_, port):
        yield port


@contextmanager
def connected(port: int, *, says: bytes = b"", host: str = "127.0.0.1", buffer: int = SMALL) -> Iterator[socket.socket]:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.settimeout(PATIENCE_S)
        line.connect((host, port))
        line.sendall(says)
        yield line


def request(port: int, path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n".encode()


def is_cut(line: socket.socket) -> bool:
    """Reads to the end, which must come."""
    try:
        while line.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: ",
        b"POST /api/runs/1/write HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_request_that_does_not_end_is_cut(port: int, says: bytes) -> None:
    with connected(port, says=says) as line:
        assert is_cut(line)


def test_request_that_trickles_is_cut_however_often_a_byte_comes(port: int) -> None:
    with connected(port) as line:
        begun = time.monotonic()
        with suppress(OSError):
            while time.monotonic() < begun + PATIENCE_S:
                line.sendall(b"G")
                time.sleep(0.01)  # the pace of the trickle
        assert time.monotonic() < begun + PATIENCE_S


def test_second_request_of_a_connection_has_its_own_time(port: int) -> None:
    with connected(port, says=request(port, "/api/runs")) as line:
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(b"GET / HT")
        assert is_cut(line)


def test_stream_that_is_silent_is_no_slow_request(port: int) -> None:
    with connected(port, says=request(port, "/api/events?runs=1")) as line:
        assert b"200" in line.recv(15, socket.MSG_WAITALL)
        line.settimeout(4 * limiter.REQUEST_S)
        assert not is_cut(line)


def test_download_that_nobody_reads_is_cut_and_gives_its_place_back(run: Run, port: int) -> None:
    checkpoint_at(run.folder, 5).write_bytes(bytes(8 * 2**20))
    with ExitStack() as lines:
        begun = time.monotonic()
        for _ in range(app.DOWNLOADS_OF_ONE):
            lines.enter_context(connected(port, says=request(port, "/api/runs/1/weights")))
        while time.monotonic() < begun + PATIENCE_S:
            with connected(port, says=request(port, "/api/runs/1/weights", "Connection: close\r\n")) as line:
                if line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200":
                    break
        print(f"readers that do not read were cut after {time.monotonic() - begun:.1f} s")
        assert time.monotonic() - begun < PATIENCE_S


def test_slow_reader_that_reads_on_gets_all_of_it(port: int, run: Run) -> None:
    size = 2**22
    checkpoint_at(run.folder, 5).write_bytes(bytes(size))
    # With a smaller buffer TCP itself waits between pieces, as long as it likes.
    with connected(port, says=request(port, "/api/runs/1/weights", "Connection: close\r\n"), buffer=65536) as line:
        n_got, begun = 0, time.monotonic()
        while piece := line.recv(65536):
            n_got += len(piece)
            time.sleep(0.02)  # the pace of the reader, who takes longer in all than a pause may be
        assert n_got > size
        assert time.monotonic() - begun > 2 * limiter.READING_S


def test_connections_of_one_address_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "MAX_OF_ADDRESS", 3)
    with listening_board(root) as (_, port), ExitStack() as lines:
        kept = [lines.enter_context(connected(port, says=request(port, "/api/events"))) for _ in range(3)]
        assert all(line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200" for line in kept)
        with connected(port) as more:
            assert is_cut(more)
        kept[0].close()
        until(lambda: can_ask(port))


IDLE = [
    b"",
    b"GET / HTTP/1.1\r\nHost: ",
    b"POST /api/runs/1/write HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
]


@pytest.mark.parametrize("says", [*IDLE, None])
def test_connections_that_are_held_lock_nobody_out_who_asks(
    root: Path, monkeypatch: pytest.MonkeyPatch, says: bytes | None
) -> None:
    monkeypatch.setattr(limiter, "MAX_OF_ADDRESS", 3)
    with listening_board(root) as (_, port), ExitStack() as lines:
        held = []
        for _ in range(10):
            held.append(lines.enter_context(connected(port, says=says or b"")))
            if says is None:  # one that was answered; while it asks it would be at work
                held[-1].sendall(request(port, "/api/nothing"))
                while b"404" not in held[-1].recv(65536):
                    pass
        for number in range(5):
            with connected(port, says=request(port, "/api/runs", "Connection: close\r\n")) as asking:
                assert asking.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200", number
        assert is_cut(held[0])


def test_connection_that_asked_nothing_for_longest_goes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "MAX_OF_ADDRESS", 3)
    with listening_board(root) as (_, port), ExitStack() as lines:
        stream, first, second = (lines.enter_context(connected(port, buffer=65536)) for _ in range(3))
        for line, path in ((stream, "/api/events"), (first, "/api/nothing"), (second, "/api/nothing")):
            line.sendall(request(port, path))  # in the order in which they came
            assert line.recv(12, socket.MSG_WAITALL).startswith(b"HTTP/1.1 ")
        first.sendall(request(port, "/api/nothing"))
        while b"HTTP/1.1 404" not in first.recv(65536):
            pass
        with connected(port, says=request(port, "/api/nothing")) as third:
            assert third.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 404"
            assert is_cut(second)
            first.sendall(request(port, "/api/nothing"))
            assert first.recv(12)


def test_whoever_does_not_read_goes_where_nobody_is_idle(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "MAX_OF_ADDRESS", 2)
    checkpoint_at(run.folder, 5).write_bytes(bytes(8 * 2**20))
    with listening_board(root) as (_, port), ExitStack() as lines:
        stream = lines.enter_context(connected(port, says=request(port, "/api/events")))
        assert stream.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        unread = lines.enter_context(connected(port, says=request(port, "/api/runs/1/weights")))
        assert unread.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        until(lambda: can_ask(port))
        assert stream.recv(1)


@final
class Held:
    """A connection that asks nothing."""

    is_read = True

    def __init__(self, keeper: limiter.ConnectionLimiter, key: str) -> None:
        self.key, self._keeper = key, keeper
        self.is_answering = self.is_gone = False

    def enter(self) -> bool:
        stand_in: Any = self
        return self._keeper.enter(stand_in, self.key)

    def leave(self) -> None:
        stand_in: Any = self
        self._keeper.left(stand_in, self.key)
        self.is_gone = True


def test_where_all_places_are_taken_whoever_has_most_gives_one_up() -> None:
    keeper = limiter.ConnectionLimiter(total=4)
    held = [Held(keeper, key) for key in "abbb"]
    assert [one.enter() for one in held] == [True] * 4
    assert Held(keeper, "c").enter()
    assert [one.is_gone for one in held] == [False, True, False, False]
    for one in held:
        one.is_answering = True
    assert [Held(keeper, "c").enter() for _ in range(3)] == [True] * 3  # instead of the one before
    assert sum(one.is_gone for one in held) == 1


def can_ask(port: int) -> bool:
    with connected(port, says=request(port, "/api/runs", "Connection: close\r\n")) as asking:
        try:
            return asking.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        except ConnectionResetError:
            return False


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline


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


def test_proxy_has_as_many_connections_as_there_are() -> None:
    keeper = limiter.ConnectionLimiter(proxies=(ipaddress.ip_network("10.0.0.0/8"),))
    assert [keeper.key_of(address) for address in ("10.1.2.3", "11.1.2.3", "odd")] == ["", "11.1.2.3", "odd"]
    assert isinstance(keeper.places, Quota)

import errno
from pathlib import Path

import pytest

from fedlearn.data.transfer import ByteRange, Transfer


class Line:
    """Gives its pieces, and then an error where there is one."""

    def __init__(self, *pieces: bytes, error: OSError | None = None) -> None:
        self._pieces, self._error = [*pieces], error

    def read(self, n: int, /) -> bytes:  # noqa: ARG002
        if not self._pieces and self._error is not None:
            raise self._error
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize("error", [OSError(errno.ENETUNREACH, "Network is unreachable"), OSError("odd")])
def test_line_that_fails_is_no_error_of_the_disk(tmp_path: Path, error: OSError) -> None:
    transfer, told = Transfer(tmp_path / "file", is_checked=True), list[int]()
    with pytest.raises(ConnectionError, match=r"unreachable|odd"):
        transfer.receive(ByteRange(0, 4, "one"), Line(b"ab", error=error), told.append)
    assert transfer.n_bytes == 2
    transfer.receive(ByteRange(2, 4, "one"), Line(b"c", b"d"), told.append)
    transfer.finish()
    assert (tmp_path / "file").read_bytes() == b"abcd"
    assert told == [2, 3, 4]


def test_bytes_of_one_version_are_never_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Transfer(tmp_path / "file", is_checked=False).receive(ByteRange(0, -1, "one"), Line(b"ab"), lambda _: None)
    written = Path.write_text

    def write_and_die(path: Path, text: str, **arguments: str) -> int:
        written(path, text, **arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", write_and_die)
    with pytest.raises(KeyboardInterrupt):
        Transfer(tmp_path / "file", is_checked=False).receive(ByteRange(0, 4, "two"), Line(b"CDEF"), lambda _: None)
    assert Transfer(tmp_path / "file", is_checked=False).headers == {}


@pytest.mark.parametrize("length", ["", "many", "-5"])
def test_length_that_is_none_is_unknown(length: str) -> None:
    assert ByteRange.of(200, {"Content-Length": length}).size == -1

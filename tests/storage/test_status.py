import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fedlearn.storage import status as module
from fedlearn.storage.durable import StorageError
from fedlearn.storage.status import FRESH_S, is_alive, read_status, write_status


class Shown(msgspec.Struct):
    """What a test writes."""

    text: str
    number: float | None = None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    for text in ("a long first text", "short"):
        write_status(path, Shown(text, 1.5))
        assert read_status(path, Shown) == Shown(text, 1.5)
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"null", b"[]", b"{}", b'{"text": 1}', b'{"text": "\xff"}', b"[" * 100_000], ids=repr
)
def test_what_is_no_status_is_none(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(payload)
    assert read_status(path, Shown) is None


def test_missing_file_and_folder_are_none(tmp_path: Path) -> None:
    assert read_status(tmp_path / "status.json", Shown) is None
    assert read_status(tmp_path, Shown) is None


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_pipe_and_device_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_status(tmp_path / "pipe", Shown) is None
    (tmp_path / "device").symlink_to("/dev/zero")
    assert read_status(tmp_path / "device", Shown) is None


def test_file_beyond_any_run_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    write_status(path, Shown("x" * 1000))
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    assert read_status(path, Shown) is None


def test_place_that_can_not_be_written_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / "status.json").mkdir()
    with pytest.raises(StorageError, match=r"status.json: could not be written"):
        write_status(tmp_path / "status.json", Shown("text"))


def test_process_that_wrote_a_moment_ago_is_alive() -> None:
    assert is_alive(os.getpid(), 1000.0, now=1000.0 + FRESH_S - 0.1)
    assert is_alive(os.getppid(), 1000.0, now=1000.0)
    assert is_alive(1, 1000.0, now=1000.0)  # whoever's it is


@pytest.mark.parametrize("time", [1000.0 - FRESH_S, 1000.0 + FRESH_S, float("nan")])
def test_process_that_wrote_long_ago_or_in_the_future_is_not(time: float) -> None:
    assert not is_alive(os.getpid(), time, now=1000.0)


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**70])
def test_number_that_no_process_has_is_not_asked_for(pid: int) -> None:
    assert not is_alive(pid, 1000.0, now=1000.0)


def test_process_that_has_ended_is_not_alive() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not is_alive(ended.pid, 1000.0, now=1000.0)

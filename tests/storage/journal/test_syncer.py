import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlearn.storage.journal import syncer
from fedlearn.storage.journal.syncer import Syncer


@pytest.fixture
def file(tmp_path: Path) -> Iterator[io.FileIO]:
    with io.FileIO(tmp_path / "journal", "w") as opened:
        yield opened


def test_requests_within_a_pause_are_served_together_and_closing_does_not_wait(
    file: io.FileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: list[int] = []
    has_synced = threading.Event()

    def sync_content(written: io.FileIO) -> None:
        contents.append(written.tell())
        has_synced.set()

    monkeypatch.setattr(syncer, "sync_content", sync_content)
    synced = Syncer(file, pause_s=threading.TIMEOUT_MAX)
    file.write(b"a")
    synced.request()
    assert has_synced.wait(60.0)
    has_synced.clear()
    for _ in range(3):
        file.write(b"b")
        synced.request()
    assert not has_synced.wait(0.05)
    synced.close()
    assert contents == [1, 4]


def test_a_request_after_a_pause_is_served_without_closing(file: io.FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    served = threading.Semaphore(0)
    monkeypatch.setattr(syncer, "sync_content", lambda _: served.release())
    synced = Syncer(file, pause_s=0.0)
    for _ in range(3):
        synced.request()
        assert served.acquire(timeout=60.0)
    synced.close()


def test_a_disk_that_refused_is_told_of_by_the_next_request(file: io.FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: io.FileIO) -> None:
        raise OSError("no space")

    monkeypatch.setattr(syncer, "sync_content", refuse)
    synced = Syncer(file)
    synced.request()
    synced._thread.join(60.0)
    with pytest.raises(OSError, match="no space"):
        synced.request()
    with pytest.raises(OSError, match="no space"):
        synced.close()

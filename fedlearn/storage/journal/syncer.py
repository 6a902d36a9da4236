"""Brings written data to the disk, in a thread of its own."""

import io
import os
import threading
from typing import final

PAUSE_S = 0.02
"""Seconds between two times that a file is brought to the disk: each takes a tenth of the processor time of a small
model's step."""

_sync = getattr(os, "fdatasync", os.fsync)


def sync_content(file: io.FileIO) -> None:
    """Returns when the file's content is on the disk.

    Raises:
        OSError: the disk refuses.
    """
    _sync(file.fileno())


@final
class Syncer:
    """Brings a file's content to the disk when asked; requests that come within `pause_s` are served together."""

    def __init__(self, file: io.FileIO, pause_s: float = PAUSE_S) -> None:
        self._file, self._pause_s = file, pause_s
        self._wanted, self._closing = threading.Event(), threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Requests that the content be brought to the disk, and returns at once.

        Raises:
            OSError: an earlier request failed.
        """
        if self._error is not None:
            raise self._error
        self._wanted.set()

    def close(self) -> None:
        """Returns when everything is on the disk.

        Raises:
            OSError: the disk refused.
        """
        self._closing.set()
        self._wanted.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while self._error is None:
            self._wanted.wait()
            self._wanted.clear()
            is_last = self._closing.is_set()
            try:
                sync_content(self._file)
            except OSError as error:
                self._error = error
            if is_last:
                return
            self._closing.wait(self._pause_s)

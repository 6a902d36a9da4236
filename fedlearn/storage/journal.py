"""The journal: every Update of a run, appended before anybody else sees it.

An appended Update is in the file, whatever becomes of the process. It reaches the disk a few milliseconds later, by a
thread of its own, so that no volunteer waits for it: a power cut may take the last steps, which then are taken anew.

After a header come records: a marker of 4 bytes, the payload's length and the CRC-32 of length and payload
(both uint32, little-endian), then the payload, an encoded Update. The marker is where reading can start again
behind damage, which tells a torn tail (a crash in the midst of an append; cut) from damage in the middle
(refused).
"""

import io
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, final

from fedlearn.es.update import Update
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.wire.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError

MAX_RECORD_BYTES = 2**26
"""64 MiB, above any Update that the wire carries."""

_HEADER = b"fedlearn journal 2\n"
_MARKER = b"\xf5UPD"
"""Its first byte occurs in no UTF-8 text."""
_RECORD = struct.Struct("<4sII")

_sync = getattr(os, "fdatasync", os.fsync)


@final
class Journal:
    """A journal that is open for appending. The caller holds the run's lock."""

    def __init__(self, path: Path, file: io.FileIO, *, end: int, next_step: int | None, cut_bytes: int) -> None:
        self.path = path
        self.next_step = next_step
        """Step of the Update that comes next; None where the journal is empty and any may come."""
        self.cut_bytes = cut_bytes
        """Length of the torn tail that opening cut off; 0 where there was none."""
        self._file = file
        self._end = end
        self._syncer = _Syncer(file)

    @property
    def length_bytes(self) -> int:
        """Bytes of all that was appended so far."""
        return self._end

    @classmethod
    def open(cls, path: Path) -> Self:
        """The journal at `path`, a new one where there is none; a torn tail is cut off.

        Raises StorageError for a file that is no journal, or is damaged before its last record.
        """
        if not path.exists() or path.stat().st_size == 0:
            write_durably(path, _HEADER)
        end, last = len(_HEADER), None
        with path.open("rb") as reader:
            for record in _read_records(path, reader):
                end, last = record
            cut_bytes = reader.seek(0, os.SEEK_END) - end
        next_step = None if last is None else _update(path, last).step + 1
        file = io.FileIO(path, "r+")
        if cut_bytes:
            file.truncate(end)
            os.fsync(file.fileno())
        return cls(path, file, end=end, next_step=next_step, cut_bytes=cut_bytes)

    def append(self, update: Update) -> None:
        """Returns once the Update is in the file, and on its way to the disk.

        Raises StorageError for an Update out of turn, and where the disk refuses this one or refused one before; the
        journal then stays as it was.
        """
        if self.next_step not in (None, update.step):
            raise StorageError(f"{self.path}: expected the update of step {self.next_step}, got {update.step}")
        payload = encode(update)
        if len(payload) > MAX_RECORD_BYTES:
            raise StorageError(
                f"{self.path}: expected an update of at most {MAX_RECORD_BYTES} bytes, got {len(payload)}; "
                f"lower population_limit"
            )
        record = _RECORD.pack(_MARKER, len(payload), _checksum(payload)) + payload
        try:
            self._file.seek(self._end)
            rest = memoryview(record)
            while rest:
                rest = rest[self._file.write(rest) :]
            self._syncer.request()
        except OSError as error:
            with suppress(OSError):  # what stays of the record is overwritten, or cut by the next opening
                self._file.truncate(self._end)
            raise StorageError(
                f"{self.path}: step {update.step} could not be written: {error.strerror}; "
                f"the journal ends before it: make room and resume the run"
            ) from error
        self._end += len(record)
        self.next_step = update.step + 1

    def close(self) -> None:
        """Brings what is left to the disk. Raises StorageError where it refuses."""
        try:
            self._syncer.close()
        except OSError as error:
            raise StorageError(
                f"{self.path}: the last steps may not be on the disk: {error.strerror}; "
                "see that the disk is well, then resume the run"
            ) from error
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@final
class _Syncer:
    """Brings a file's content to the disk when asked, many requests at once where they come faster than the disk."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._wanted = threading.Event()
        self._is_closing = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Returns at once. Raises the OSError of an earlier request that failed."""
        if self._error is not None:
            raise self._error
        self._wanted.set()

    def close(self) -> None:
        """Returns when all is on the disk. Raises OSError where it is not."""
        self._is_closing = True
        self._wanted.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while self._error is None:
            self._wanted.wait()
            self._wanted.clear()
            is_last = self._is_closing
            try:
                _sync(self._file.fileno())
            except OSError as error:
                self._error = error
            if is_last:
                return


def read_journal(path: Path) -> Iterator[Update]:
    """Every Update, in order of steps; a torn tail is passed over, and so is what a running server appends now.

    Raises StorageError for a missing file, a file that is no journal, damage before the last record and steps
    that do not follow one another.
    """
    expected = None
    try:
        with path.open("rb") as reader:
            for end, payload in _read_records(path, reader):
                update = _update(path, payload)
                if expected not in (None, update.step):
                    raise StorageError(
                        f"{path}: expected step {expected} in the record before byte {end}, got {update.step}"
                    )
                yield update
                expected = update.step + 1
    except FileNotFoundError as error:
        raise StorageError(f"{path}: expected a journal, there is none") from error


def _read_records(path: Path, reader: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Of each record: where it ends in the file, and its payload; stops before a torn tail."""
    header = reader.read(len(_HEADER))
    if not header:
        return
    if header != _HEADER:
        raise StorageError(
            f"{path}: expected {_HEADER!r} at the start, got {header!r}; it is no journal, or one of another version"
        )
    end = len(_HEADER)
    while True:
        while (payload := _read_record(reader)) is not None:
            end += _RECORD.size + len(payload)
            yield end, payload
        reader.seek(end)
        tail = reader.read(_RECORD.size + MAX_RECORD_BYTES + 1)
        if _read_record(io.BytesIO(tail)) is None:
            break
        reader.seek(end)  # the record was still being written, and is whole by now
    if _is_damage(tail):
        raise StorageError(f"{path}: damaged at byte {end}, and the journal goes on behind it; restore it from a copy")


def _read_record(reader: BinaryIO) -> bytes | None:
    """The payload of the record that begins here; None where no whole and good one does."""
    head = reader.read(_RECORD.size)
    if len(head) < _RECORD.size:
        return None
    marker, length, checksum = _RECORD.unpack(head)
    if marker != _MARKER or length > MAX_RECORD_BYTES:
        return None
    payload = reader.read(length)
    return payload if len(payload) == length and _checksum(payload) == checksum else None


def _is_damage(tail: bytes) -> bool:
    """Whether this is more than one unfinished record: a good one follows, or it is too long for one."""
    if len(tail) > _RECORD.size + MAX_RECORD_BYTES:
        return True
    reader = io.BytesIO(tail)
    start = tail.find(_MARKER, 1)
    while start >= 0:
        reader.seek(start)
        if _read_record(reader) is not None:
            return True
        start = tail.find(_MARKER, start + 1)
    return False


def _update(path: Path, payload: bytes) -> Update:
    try:
        return decode(payload, Update)
    except RemoteProtocolError as error:
        raise StorageError(f"{path}: expected an update of this version of fedlearn: {error}") from error


def _checksum(payload: bytes) -> int:
    """Covers the length too, so that zeros are no record."""
    return zlib.crc32(payload, zlib.crc32(struct.pack("<I", len(payload))))

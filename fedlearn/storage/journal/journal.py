"""The journal: every Update of a run, appended before anybody else sees it, in segments of a bounded size.

Once an Update is appended it is in the file, whatever becomes of the process. A thread brings it to the disk within
some hundredths of a second, so that no volunteer waits for the disk: a power cut may take the last steps, which are
then taken again. A segment is on the disk as a whole before the next one begins.
"""

import io
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, final

from fedlearn.es.update import Update
from fedlearn.storage.aside import Aside
from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError, make_folder
from fedlearn.storage.journal.cutting import cut_journal
from fedlearn.storage.journal.records import MAX_PAYLOAD_BYTES
from fedlearn.storage.journal.segment import (
    HEADER_BYTES,
    Header,
    Record,
    create_segment,
    encode_step,
    first_step_of,
    name_of,
    read_header,
    read_places,
    segments_in,
)
from fedlearn.storage.journal.syncer import Syncer, sync_content

SEGMENT_BYTES = 64 * 1024 * 1024
"""Length of a segment, unless the whole journal is to be small."""

_SEGMENTS = 8
"""Number of segments that a small journal has."""

_LEAST_SEGMENT_BYTES = 4096


def _segment_bytes(keep_bytes: int | None) -> int:
    if keep_bytes is None:
        return SEGMENT_BYTES
    return min(SEGMENT_BYTES, max(keep_bytes // _SEGMENTS, _LEAST_SEGMENT_BYTES))


class MissingStepsError(StorageError):
    """Raised where the journal has later steps, but not the ones before them."""


@final
class Journal:
    """A journal that is open for appending; the caller holds the run's lock."""

    def __init__(self, segments: list[Path], header: Header, *, end: int, keep_bytes: int | None) -> None:
        self.next_step = header.step
        """Step of the Update that comes next."""
        self.cut_bytes = 0
        """Length of the torn tail that opening cut off; 0 where there was none."""
        self.is_joined = True
        """Whether the steps that the journal had lead up to the step at which it goes on."""
        self._identity = header.identity
        self._segments = segments
        self.keep(keep_bytes)
        self._older_bytes = sum(path.stat().st_size for path in segments[:-1])
        self._file = io.FileIO(segments[-1], "r+")
        self._end = end
        self._changing = threading.Lock()
        """Held while `_file` is replaced, and while another thread brings it to the disk."""
        self._syncer = Syncer(self._file)

    @property
    def path(self) -> Path:
        """The segment that is written to."""
        return self._segments[-1]

    @property
    def length_bytes(self) -> int:
        """Bytes of all its steps."""
        return self._older_bytes + self._end - HEADER_BYTES * len(self._segments)

    @classmethod
    def open(cls, folder: Path, header: Header, *, keep_bytes: int | None = None, aside: Aside | None = None) -> Self:
        """The journal of a run, ready to go on at the header's step, before which the replica has the header's digest.

        A torn tail is cut off, and what the journal has of this step and later ones is set aside. When the journal is
        longer than `keep_bytes`, `trim` drops segments; with None it never does.

        Raises:
            StorageError: the disk refuses, or the journal is of another version.
        """
        aside = aside or Aside(folder.parent)
        make_folder(folder)
        for leftover in folder.glob(f"*{PARTIAL_SUFFIX}"):
            leftover.unlink()
        end = cut_journal(folder, header.step, aside)
        segments = segments_in(folder)
        if end is None or read_header(segments[-1]) is None:
            journal = cls([*segments, create_segment(folder, header)], header, end=HEADER_BYTES, keep_bytes=keep_bytes)
            journal.is_joined = end is not None
            return journal
        journal = cls(segments, header, end=end, keep_bytes=keep_bytes)
        journal._cut_tail()
        return journal

    def keep(self, n_bytes: int | None) -> None:
        """Sets the bytes beyond which `trim` drops segments; None: it drops none."""
        self._keep_bytes, self._segment_bytes = n_bytes, _segment_bytes(n_bytes)

    def append(self, update: Update, digest: bytes) -> None:
        """Appends an Update to the file, which a thread brings to the disk; `digest` is that of the replica before its
        step.

        Raises:
            StorageError: the Update is out of turn, or the disk refuses it or has refused an earlier one; the journal
                then stays as it was.
        """
        if self.next_step != update.step:
            raise StorageError(f"{self.path}: expected the update of step {self.next_step}, got {update.step}")
        record = encode_step(update, digest)
        if len(record) > MAX_PAYLOAD_BYTES:
            raise StorageError(
                f"{self.path}: expected an update of at most {MAX_PAYLOAD_BYTES} bytes, got {len(record)}; "
                f"lower population_limit"
            )
        try:
            if self._end + len(record) > self._segment_bytes and self._end > HEADER_BYTES:
                self._begin_segment(Header(self._identity, update.step, digest))
            self._write(record)
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

    def sync(self) -> None:
        """Returns when everything that was appended is on the disk; another thread may call it.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            with self._changing:
                sync_content(self._file)
        except OSError as error:
            raise StorageError(f"{self.path}: could not be written: {error.strerror}; make room") from error

    def trim(self, *, before: int) -> None:
        """Drops the oldest segments that lie wholly before a step while the journal is longer than `keep_bytes`.

        Another thread may call it.

        Raises:
            StorageError: the disk refuses.
        """
        while self._keep_bytes is not None and self.length_bytes > self._keep_bytes and len(self._segments) > 1:
            oldest, following = self._segments[:2]
            if first_step_of(following) > before:
                return
            try:
                size = oldest.stat().st_size
                oldest.unlink()
            except OSError as error:
                raise StorageError(f"{oldest}: could not be removed: {error.strerror}; remove it") from error
            with self._changing:
                del self._segments[0]
                self._older_bytes -= size

    def close(self) -> None:
        """Brings the rest to the disk, and closes the journal.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            self._syncer.close()
        except OSError as error:
            raise StorageError(
                f"{self.path}: the last steps may not be on the disk: {error.strerror}; "
                "check the disk, then resume the run"
            ) from error
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut_tail(self) -> None:
        self.cut_bytes = self.path.stat().st_size - self._end
        if self.cut_bytes:
            self._file.truncate(self._end)
            os.fsync(self._file.fileno())

    def _write(self, record: bytes) -> None:
        self._file.seek(self._end)
        rest = memoryview(record)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _begin_segment(self, header: Header) -> None:
        """Begins a segment, once the steps before it are on the disk, so that a power cut leaves no gap."""
        self.sync()
        path = create_segment(self.path.parent, header)
        with self._changing:
            self._syncer.close()
            self._file.close()
            self._older_bytes += self._end
            self._file = io.FileIO(path, "r+")
            self._end = HEADER_BYTES
            self._segments.append(path)
            self._syncer = Syncer(self._file)


def read_records(
    folder: Path, *, start: int = 0, identity: bytes | None = None, problems: list[str] | None = None
) -> Iterator[Record]:
    """The steps from `start` on, in order; records that a running server appends now are passed over, like a torn tail.

    Segments of earlier steps are not read. Damage is described in `problems`, and so is a torn tail. `identity` is that
    of the run, where the segments must be of it.

    Raises:
        MissingStepsError: steps are missing before later ones.
        StorageError: a segment is of another run or version.
    """
    expected = start
    problems = problems if problems is not None else []
    segments = segments_in(folder)
    while len(segments) > 1 and first_step_of(segments[1]) <= start:
        del segments[0]
    for path in segments:
        check_header(path, identity, problems)
        for record in read_steps(path, problems):
            if record.step < expected:
                continue
            if record.step > expected:
                raise MissingStepsError(
                    f"{folder}: expected step {expected}, the journal goes on at {record.step}; "
                    "restore the steps between from a copy"
                )
            yield record
            expected += 1


def check_header(path: Path, identity: bytes | None, problems: list[str]) -> None:
    """Adds a damaged header to `problems`.

    Raises:
        StorageError: the segment is of another run than the one given, or of another version.
    """
    header = read_header(path)
    if header is None:
        problems.append(f"{path}: damaged at its start")
    elif identity is not None and identity != header.identity:
        raise StorageError(
            f"{path}: expected a segment of this run ({identity.hex()}), got one of another ({header.identity.hex()}); "
            "put this run's own journal back"
        )


def read_steps(path: Path, problems: list[str]) -> Iterator[Record]:
    """The whole steps of a segment, in the order of the file; damage is described in `problems`."""
    size, end = path.stat().st_size, HEADER_BYTES  # a running server may append more while this reads
    for begin, following, record in read_places(path):
        if begin != end:
            problems.append(f"{path}: damaged at byte {end}")
        end = following
        yield record
    if size > end:
        problems.append(f"{path}: its last {size - end} bytes are an incomplete step")


def read_journal(folder: Path, *, start: int = 0) -> Iterator[Update]:
    """The Updates from step `start` on, as `read_records` gives them."""
    for record in read_records(folder, start=start):
        yield record.update


class Stretch(NamedTuple):
    """Steps that follow each other without a gap, from `first` to the one before `end`."""

    first: int
    end: int


def stretches_of(folder: Path, problems: list[str]) -> list[Stretch]:
    """The steps of the whole journal that can be read, in order; damage is described in `problems`."""
    stretches: list[Stretch] = []
    for path in segments_in(folder):
        check_header(path, None, problems)
        stretches += stretches_in(path, problems)
    return joined(stretches)


def stretches_in(path: Path, problems: list[str]) -> list[Stretch]:
    """The steps of one segment; errors of their order, and of the segment's name, are added to `problems`."""
    header = read_header(path)
    first = first_step_of(path) if header is None else header.step
    if first != first_step_of(path):
        problems.append(
            f"{path}: expected the segment that begins at step {first_step_of(path)}, got the one that begins at "
            f"{first}; its name is {name_of(first)}"
        )
    found = [Stretch(first, first)]
    for record in read_steps(path, problems):
        if record.step == found[-1].end:
            found[-1] = found[-1]._replace(end=record.step + 1)
        else:
            found.append(Stretch(record.step, record.step + 1))
    return found


def joined(stretches: list[Stretch]) -> list[Stretch]:
    """The stretches by step; those that touch or overlap are one."""
    joined: list[Stretch] = []
    for stretch in sorted(stretches):
        if joined and stretch.first <= joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, stretch.end))
        else:
            joined.append(stretch)
    return joined

"""A file of the journal: a header that names its run and its first step, then a record for each step.

The header is `fedlearn journal 3\\n`, then the run's identity (16 bytes), the first step (uint64, little-endian), the
digest of the replica before that step (8 bytes), and the CRC-32 of these 32 bytes. A record's payload is the step
(uint64, little-endian), the digest of the replica before it (8 bytes), and the encoded Update.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedlearn.es.update import Update
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.journal.records import read_found, record_of
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError

_MAGIC = b"fedlearn journal 3\n"
_FAMILY = _MAGIC[:-2]
_HEADER = struct.Struct("<16sQ8s")
_CHECKSUM = struct.Struct("<I")
_STEP = struct.Struct("<Q8s")
_DIGITS = 12

HEADER_BYTES = len(_MAGIC) + _HEADER.size + _CHECKSUM.size


class Header(NamedTuple):
    """The content of a segment's header."""

    identity: bytes
    """The run's identity, 16 bytes."""
    step: int
    """The first step."""
    digest: bytes
    """Digest of the replica before that step, 8 bytes."""


class Record(NamedTuple):
    """A step in the journal."""

    step: int
    digest: bytes
    """Digest of the replica before the step, 8 bytes."""
    encoded: bytes

    @property
    def update(self) -> Update:
        """The Update of the step, decoded.

        Raises:
            StorageError: it is of another version of fedlearn, or of another step.
        """
        try:
            update = decode(self.encoded, Update)
        except RemoteProtocolError as error:
            raise StorageError(
                f"journal: step {self.step}: expected an update of this version of fedlearn: {error}; "
                "use the version that wrote it"
            ) from error
        if update.step != self.step:
            raise StorageError(f"journal: expected the update of step {self.step}, got that of {update.step}")
        return update


class RecordPosition(NamedTuple):
    """A record with the bytes of its file at which it begins and ends."""

    begin: int
    end: int
    record: Record


def segments_in(folder: Path) -> list[Path]:
    """The segments, by first step.

    Raises:
        StorageError: a file lies where the folder should be.
    """
    if folder.is_file():
        raise StorageError(
            f"{folder}: expected a folder of segments, got a file; the run is of an older version of fedlearn, "
            "which can resume it"
        )
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdecimal() and len(path.name) == _DIGITS)


def first_step_of(path: Path) -> int:
    """The first step of a segment, by its file name."""
    return int(path.name)


def name_of(step: int) -> str:
    """The file name of the segment that begins at a step."""
    return f"{step:0{_DIGITS}d}"


def create_segment(folder: Path, header: Header) -> Path:
    """Makes a segment without steps, which is on the disk as a whole or not at all.

    Raises:
        StorageError: the disk refuses.
    """
    path = folder / name_of(header.step)
    content = _HEADER.pack(*header)
    write_durably(path, _MAGIC + content + _CHECKSUM.pack(zlib.crc32(content)))
    return path


def encode_step(update: Update, digest: bytes) -> bytes:
    """The step as a record."""
    return record_of(_STEP.pack(update.step, digest) + encode(update))


def read_header(path: Path) -> Header | None:
    """The header of a segment; None where it is damaged or torn.

    Raises:
        StorageError: the file cannot be read, or is of another version.
    """
    try:
        with path.open("rb") as reader:
            head = reader.read(HEADER_BYTES)
    except OSError as error:
        raise StorageError(f"{path}: expected a segment of the journal: {error.strerror}; try again") from error
    line, content = head[: len(_MAGIC)], head[len(_MAGIC) : -_CHECKSUM.size]
    if line.startswith(_FAMILY) and line.endswith(b"\n") and line != _MAGIC:
        raise StorageError(f"{path}: expected {_MAGIC!r} at the start, got {line!r}; use the fedlearn that wrote it")
    if len(head) < HEADER_BYTES or line != _MAGIC or head[-_CHECKSUM.size :] != _CHECKSUM.pack(zlib.crc32(content)):
        return None
    return Header(*_HEADER.unpack(content))


def read_places(path: Path) -> Iterator[RecordPosition]:
    """The whole steps of a segment; where one does not begin at the end of the one before, there is damage between.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        reader = path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: expected a segment of the journal: {error.strerror}; try again") from error
    with reader:
        for found in read_found(reader, HEADER_BYTES):
            if len(found.payload) >= _STEP.size:
                step, digest = _STEP.unpack_from(found.payload)
                yield RecordPosition(found.begin, found.end, Record(step, digest, found.payload[_STEP.size :]))

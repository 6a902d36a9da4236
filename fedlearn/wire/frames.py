"""Frames: a message's payload cut into checked chunks of at most 64 KiB, and a parser for pieces of any size.

Header, 24 bytes, little-endian: magic "fL", version, message type, flags, stream, job, chunk index, number of
chunks, payload length, CRC-32 of the 20 bytes before it and the payload.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, final

from fedlearn.wire.errors import RemoteProtocolError

FRAME_VERSION = 1
CHUNK_BYTES = 64 * 1024
HEADER_BYTES = 24

CONTROL_STREAM = 0
DATA_STREAM = 1

_MAGIC = b"fL"
_FLAGS = 0
_JOB = 0
_HEADER = struct.Struct("<2sBBBBHIII")
_CHECKSUM = struct.Struct("<I")


class Frame(NamedTuple):
    """One chunk of one message, its checksum already verified."""

    message_type: int
    stream: int
    chunk: int
    n_chunks: int
    payload: memoryview


def n_chunks(length_bytes: int) -> int:
    """Frames that a payload of this length takes; a payload is never empty."""
    return -(-length_bytes // CHUNK_BYTES)


def split(payload: bytes, *, message_type: int, stream: int) -> Iterator[bytes]:
    """The frames of one message, in order, each made when it is asked for."""
    view = memoryview(payload)
    count = n_chunks(len(payload))
    for index in range(count):
        chunk = view[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        header = _HEADER.pack(_MAGIC, FRAME_VERSION, message_type, _FLAGS, stream, _JOB, index, count, len(chunk))
        checksum = zlib.crc32(chunk, zlib.crc32(header))
        yield b"".join((header, _CHECKSUM.pack(checksum), chunk))


@final
class FrameParser:
    """Turns the bytes of one direction into frames; holds at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = HEADER_BYTES

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has begun to arrive and is not complete."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames completed by these bytes; iterate to the end before feeding more.

        Raises:
            RemoteProtocolError: a header that is not ours, or a checksum that differs.
        """
        rest = memoryview(data)
        while rest:
            missing = self._needed - len(self._buffer)
            self._buffer += rest[:missing]
            rest = rest[missing:]
            if len(self._buffer) == HEADER_BYTES:
                self._needed = HEADER_BYTES + _checked_payload_length(self._buffer)
            elif len(self._buffer) == self._needed:
                complete, self._buffer, self._needed = self._buffer, bytearray(), HEADER_BYTES
                yield _checked_frame(complete)


def _checked_payload_length(header: bytearray) -> int:
    magic, version, _, flags, stream, job, index, count, length = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise RemoteProtocolError(f"magic: expected {_MAGIC!r}, got {magic!r}; the peer is no fedlearn")
    if version != FRAME_VERSION:
        raise RemoteProtocolError(
            f"frame version: expected {FRAME_VERSION}, got {version}; the older side must be updated"
        )
    if (flags, job) != (_FLAGS, _JOB) or stream not in (CONTROL_STREAM, DATA_STREAM):
        raise RemoteProtocolError(
            f"frame: expected flags {_FLAGS}, job {_JOB}, stream {CONTROL_STREAM} or {DATA_STREAM}, "
            f"got flags {flags}, job {job}, stream {stream}"
        )
    if index >= count:
        raise RemoteProtocolError(f"chunk index: expected less than the count of {count}, got {index}")
    if not 1 <= length <= CHUNK_BYTES or (index < count - 1 and length != CHUNK_BYTES):
        raise RemoteProtocolError(
            f"payload length: expected {CHUNK_BYTES}, or 1 to {CHUNK_BYTES} in the last chunk, "
            f"got {length} in chunk {index} of {count}"
        )
    return int(length)


def _checked_frame(complete: bytearray) -> Frame:
    view = memoryview(complete)
    _, _, message_type, _, stream, _, index, count, _ = _HEADER.unpack_from(view)
    (expected,) = _CHECKSUM.unpack_from(view, _HEADER.size)
    payload = view[HEADER_BYTES:]
    checksum = zlib.crc32(payload, zlib.crc32(view[: _HEADER.size]))
    if checksum != expected:
        raise RemoteProtocolError(
            f"checksum: expected {expected:08x}, got {checksum:08x} for chunk {index} of {count}; "
            "the bytes were damaged on the way, connect again"
        )
    return Frame(message_type, stream, index, count, payload)

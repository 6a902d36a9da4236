"""Frames: a message's payload cut into checked chunks of at most 64 KiB, and a parser for pieces of any size.

Header, 24 bytes, little-endian: magic "fL", version, message type, flags, stream, job, chunk index, number of
chunks, payload length, CRC-32 of the 20 bytes before it and the payload.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, final

from fedlearn.wire.encoding.checksum import crc32
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
_TAG_AT = 3
_CHECKSUM = struct.Struct("<I")


class Frame(NamedTuple):
    """One chunk of one message, its checksum already verified."""

    message_type: int
    stream: int
    chunk: int
    n_chunks: int
    payload: memoryview
    header: memoryview = memoryview(bytes(HEADER_BYTES))
    """The header as it came, with the checksum."""


def n_chunks(length_bytes: int) -> int:
    """Frames that a payload of this length takes; a payload is never empty."""
    return -(-length_bytes // CHUNK_BYTES)


def headers(payload: bytes | bytearray | memoryview, *, message_type: int, stream: int) -> list[bytes]:
    """The header of each chunk of a payload, in order."""
    count = n_chunks(len(payload))
    if count == 1:  # the usual case, thousands of times in a step
        return [_header(payload, message_type, stream, 0, 1)]
    view = memoryview(payload)
    chunks = [view[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES] for index in range(count)]
    return [_header(chunk, message_type, stream, index, count) for index, chunk in enumerate(chunks)]


def tag_of(frame: bytes) -> int:
    """The message type of a whole frame."""
    return frame[_TAG_AT]


def _header(chunk: bytes | bytearray | memoryview, message_type: int, stream: int, index: int, count: int) -> bytes:
    header = _HEADER.pack(_MAGIC, FRAME_VERSION, message_type, _FLAGS, stream, _JOB, index, count, len(chunk))
    return header + _CHECKSUM.pack(crc32(chunk, crc32(header, 0)))


@final
class FrameParser:
    """Turns the bytes of one direction into frames; holds at most one unfinished frame.

    Attributes:
        max_payload_bytes: the limit of a frame's payload; a header that announces more is refused.
    """

    def __init__(self, *, max_payload_bytes: int = CHUNK_BYTES) -> None:
        self.max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()
        self._needed = HEADER_BYTES

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has begun to arrive and is not complete."""
        return bool(self._buffer)

    @property
    def bytes_held(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames completed by these bytes; iterate to the end before feeding more.

        Raises:
            RemoteProtocolError: a header breaks the rules, or a checksum differs.
        """
        rest = memoryview(data)
        while rest:
            if not self._buffer and len(rest) >= HEADER_BYTES:
                # Usually whole frames arrive, which need no copy.
                length = HEADER_BYTES + self._checked_payload_length(rest)
                if len(rest) >= length:
                    frame, rest = rest[:length], rest[length:]
                    yield _checked_frame(frame)
                    continue
            missing = self._needed - len(self._buffer)
            self._buffer += rest[:missing]
            rest = rest[missing:]
            if len(self._buffer) == HEADER_BYTES:
                self._needed = HEADER_BYTES + self._checked_payload_length(self._buffer)
            elif len(self._buffer) == self._needed:
                complete, self._buffer, self._needed = self._buffer, bytearray(), HEADER_BYTES
                yield _checked_frame(memoryview(complete))

    def _checked_payload_length(self, header: bytearray | memoryview) -> int:
        magic, version, _, flags, stream, job, index, count, length = _HEADER.unpack_from(header)
        if magic != _MAGIC:
            raise RemoteProtocolError(f"magic: expected {_MAGIC!r}, got {magic!r}; the peer does not speak fedlearn")
        if version != FRAME_VERSION:
            raise RemoteProtocolError(
                f"frame version: expected {FRAME_VERSION}, got {version}; "
                "install the same fedlearn version on both sides"
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
        if length > self.max_payload_bytes:
            raise RemoteProtocolError(
                f"payload length: expected at most {self.max_payload_bytes} bytes for now, got {length}; "
                "the sender must wait for a lease that asks for more"
            )
        return int(length)


def _checked_frame(view: memoryview) -> Frame:
    _, _, message_type, _, stream, _, index, count, _ = _HEADER.unpack_from(view)
    (expected,) = _CHECKSUM.unpack_from(view, _HEADER.size)
    payload = view[HEADER_BYTES:]
    checksum = crc32(payload, crc32(view[: _HEADER.size], 0))
    if checksum != expected:
        raise RemoteProtocolError(
            f"checksum: expected {expected:08x}, got {checksum:08x} for chunk {index} of {count}; "
            "the bytes were damaged in transit; connect again"
        )
    return Frame(message_type, stream, index, count, payload, view[:HEADER_BYTES])

"""Records: payloads one after another in a file, each with a checksum, so that damage is noticed and passed over.

A record is a marker of 4 bytes, the payload's length and the CRC-32 of length and payload (both uint32,
little-endian), then the payload. Behind damage, reading goes on at the next marker.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAX_PAYLOAD_BYTES = 2**26
"""The longest payload of a record: 64 MiB, longer than any Update on the wire."""

_MARKER = b"\xf5UPD"
"""Marker of a record; its first byte occurs in no UTF-8 text."""
_HEAD = struct.Struct("<4sII")


class Found(NamedTuple):
    """A whole record: where it begins and ends in its file, and its payload."""

    begin: int
    end: int
    payload: bytes


def record_of(payload: bytes) -> bytes:
    """The payload as a record."""
    return _HEAD.pack(_MARKER, len(payload), _checksum(payload)) + payload


def read_found(reader: BinaryIO, start: int) -> Iterator[Found]:
    """The whole records from byte `start` on; where one does not begin at the end of the one before, there is damage.

    A torn tail, left by a crash during an append or by a process that appends now, is passed over.
    """
    end = start
    while True:
        reader.seek(end)
        while (payload := _read_payload(reader)) is not None:
            begin, end = end, end + _HEAD.size + len(payload)
            yield Found(begin, end, payload)
        reader.seek(end)
        # The search begins at byte 0: the record there may have been incomplete when it was read, and whole by now.
        offset = _next_whole(reader.read())
        if offset < 0:
            return
        end += offset


def _read_payload(reader: BinaryIO) -> bytes | None:
    """The payload of the record that begins here; None unless it is whole and undamaged."""
    head = reader.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    marker, length, checksum = _HEAD.unpack(head)
    if marker != _MARKER or length > MAX_PAYLOAD_BYTES:
        return None
    payload = reader.read(length)
    return payload if len(payload) == length and _checksum(payload) == checksum else None


def _next_whole(tail: bytes) -> int:
    """Position of the next whole record; -1 where there is none."""
    reader = io.BytesIO(tail)
    start = tail.find(_MARKER)
    while start >= 0:
        reader.seek(start)
        if _read_payload(reader) is not None:
            return start
        start = tail.find(_MARKER, start + 1)
    return -1


def _checksum(payload: bytes) -> int:
    """The CRC-32 of length and payload; the length is in it so that zeros are no record."""
    return zlib.crc32(payload, zlib.crc32(struct.pack("<I", len(payload))))

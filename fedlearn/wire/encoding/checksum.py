"""The checksum of frames: the CRC-32 of zlib, from the core where that is faster."""

import zlib

import es_core

WORTHWHILE_BYTES = 1024
"""Least number of bytes for which calling the core takes no longer than zlib."""

_HAS_FASTER = es_core.has_crc32()


def crc32(data: bytes | bytearray | memoryview, value: int) -> int:
    """Continues a CRC-32, as `zlib.crc32` does: `value` is the checksum of what precedes `data`."""
    if _HAS_FASTER and len(data) >= WORTHWHILE_BYTES:
        return es_core.crc32(data, value)
    return zlib.crc32(data, value)

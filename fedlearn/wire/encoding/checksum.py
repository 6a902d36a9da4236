"""The checksum of frames: the CRC-32 of zlib, from the core where that is faster."""

import zlib

import es_core

WORTHWHILE_BYTES = 1024
"""Of fewer, calling the core takes longer than zlib."""

_HAS_FASTER = es_core.has_crc32()


def crc32(data: bytes | bytearray | memoryview, value: int) -> int:
    """As `zlib.crc32`: of what `value` is the checksum of, followed by the data."""
    if _HAS_FASTER and len(data) >= WORTHWHILE_BYTES:
        return es_core.crc32(data, value)
    return zlib.crc32(data, value)

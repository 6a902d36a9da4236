"""Frames as any peer may send them, legal or not."""

from fedlearn.wire.encoding.frames import CHUNK_BYTES, headers


def split(payload: bytes, *, message_type: int, stream: int) -> list[bytes]:
    """The frames of a payload."""
    return [
        header + payload[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
        for number, header in enumerate(headers(payload, message_type=message_type, stream=stream))
    ]

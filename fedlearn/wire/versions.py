"""The messages that two versions of the protocol can exchange."""

import msgspec

from fedlearn.es.snapshot import Count
from fedlearn.wire.encoding.codec import decode
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import PROTOCOL_VERSION


class _AnyHello(msgspec.Struct, array_like=True, tag=1):
    """The beginning of a Hello, which is the same in every version."""

    protocol_version: Count


def version_said(payload: bytes | bytearray | memoryview) -> int | None:
    """The version that a Hello names, whatever follows it; None where the payload is no Hello."""
    try:
        return decode(payload, _AnyHello).protocol_version
    except RemoteProtocolError:
        return None


def version_mismatch(version: int) -> str:
    """Why a client of this version cannot take part, and what to do."""
    return f"protocol version: expected {PROTOCOL_VERSION}, got {version}; install the fedlearn version of the server"

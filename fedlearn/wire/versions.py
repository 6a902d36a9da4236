"""What can be said between two versions of the protocol."""

import msgspec

from fedlearn.es.snapshot import Count
from fedlearn.wire.codec import decode
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import PROTOCOL_VERSION


class _AnyHello(msgspec.Struct, array_like=True, tag=1):
    """What a Hello begins with in every version."""

    protocol_version: Count


def version_said(payload: bytes | bytearray | memoryview) -> int | None:
    """The version that a Hello names, whatever else is in it; None where it is no Hello of any."""
    try:
        return decode(payload, _AnyHello).protocol_version
    except RemoteProtocolError:
        return None


def version_mismatch(version: int) -> str:
    """Why a client of this version can't take part, and what to do."""
    return f"protocol version: expected {PROTOCOL_VERSION}, got {version}; install the fedlearn version of the server"

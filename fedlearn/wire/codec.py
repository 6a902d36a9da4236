"""Messages to msgpack bytes and back.

A message is the msgpack array `[tag, field, field, ...]`. A one-dimensional numpy array travels as
`[dtype, [length], bytes]`, little-endian, where dtype is numpy's name for it, e.g. `"<f4"` for float32.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np

from fedlearn.wire.arrays import ARRAY_DTYPES, Revive, twin_of
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError

# A reason may quote what the peer sent, which may be megabytes.
_MAX_REASON_LENGTH = 300

StructType = TypeVar("StructType", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    """The msgpack form of one message.

    Raises:
        LocalProtocolError: a field's value cannot travel, e.g. an array of strings.
    """
    try:
        return _encoder.encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(message).__name__}: cannot be encoded: {error}") from error


def decode(payload: bytes | bytearray | memoryview, expected: type[StructType]) -> StructType:
    """The message of the `expected` type; its arrays are read-only, and share no memory with `payload`.

    Non-finite floats are legal here: what they mean is for the receiver of the message to say.

    Raises:
        RemoteProtocolError: not msgpack, another tag, or a field of another type, dtype, shape or length.
    """
    decoder, revive = _decoder(expected)
    try:
        value = decoder.decode(payload)
        message: StructType = value if revive is None else revive(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(
            f"{expected.__name__}: {str(error)[:_MAX_REASON_LENGTH]}; "
            "the sender must follow docs/protocol.md of this version"
        ) from error
    return message


def _to_wire(value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"expected a plain value, a Struct or an array, got {type(value).__name__}")
    if value.ndim != 1 or value.dtype.str not in ARRAY_DTYPES:
        raise TypeError(
            f"array: expected one dimension and one of {sorted(ARRAY_DTYPES)}, "
            f"got {value.dtype.str!r} with shape {value.shape}"
        )
    return [value.dtype.str, value.shape, np.ascontiguousarray(value).view(np.uint8).data]


@cache
def _decoder(expected: type[msgspec.Struct]) -> tuple[msgspec.msgpack.Decoder[Any], Revive | None]:
    twin, revive = twin_of(expected)
    return msgspec.msgpack.Decoder(twin), revive


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_wire)

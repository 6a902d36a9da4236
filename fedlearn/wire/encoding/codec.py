"""Messages to msgpack bytes and back.

A message is the msgpack array `[tag, field, field, ...]`. A one-dimensional numpy array travels as
`[dtype, [length], bytes]`, little-endian, where dtype is numpy's name for it, e.g. `"<f4"` for float32.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

import re
import threading
from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np

from fedlearn.wire.encoding.arrays import ARRAY_DTYPES, Revive, twin_of
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError

# A reason may quote what the peer sent, which may be megabytes.
_MAX_REASON_LENGTH = 300

_OF_A_FIELD = re.compile(r"(.*) - at `\$\[(\d+)\]`")
_PATTERN = re.compile("matching regex .*")
_LENGTH = re.compile(r"Expected `str` of length <= (\d+)")
_REMEDIES = {"name": "choose another with --name"}
"""What a user can do about a field that is refused, by the field's name."""

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

    Floats that are not finite are accepted: the receiver of the message decides what they mean.

    Raises:
        RemoteProtocolError: the payload is not msgpack, or the tag or a field's type, dtype, shape or length is wrong.
    """
    decoder, revive = _decoder(expected)
    try:
        value = decoder.decode(payload)
        message: StructType = value if revive is None else revive(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = _in_words(error, expected)[:_MAX_REASON_LENGTH]
        remedy = _REMEDIES.get(reason.partition(":")[0], "the sender must follow docs/protocol.md of this version")
        raise RemoteProtocolError(f"{expected.__name__}: {reason}; {remedy}") from error
    return message


def _in_words(error: Exception, expected: type[msgspec.Struct]) -> str:
    """The reason, with the name of the field where msgspec gives its place in the array."""
    # From msgspec 0.23 on, text that is not UTF-8 is one of its own errors.
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
        return f"{'name: ' if 'name' in expected.__struct_fields__ else ''}expected text in UTF-8"
    found = _OF_A_FIELD.fullmatch(str(error))
    if found is None or not 0 < (place := int(found[2])) <= len(expected.__struct_fields__):
        return str(error)
    what = _LENGTH.sub(r"expected text of at most \1 characters", found[1])
    what = _PATTERN.sub("without control characters", what).replace("Expected `str`", "expected text")
    return f"{expected.__struct_fields__[place - 1]}: {what}"


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
    with _building:
        twin, revive = twin_of(expected)
        return msgspec.msgpack.Decoder(twin), revive


_building = threading.Lock()
"""Held while a decoder is built: msgspec caches what it learns about a Struct in the Struct, and a second thread that
reads a half-filled cache crashes the process."""

_encoder = msgspec.msgpack.Encoder(enc_hook=_to_wire)

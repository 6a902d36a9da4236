from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.es.update import Update
from fedlearn.wire.codec import decode, encode
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import Farewell, Hello, Message, Ping, Ready, Result, TokenBlock

DIGEST = bytes(8)


def result_bytes(losses: object) -> bytes:
    return msgspec.msgpack.encode([3, 12, 0, losses, DIGEST])


def test_every_message_comes_back_equal(message: Message) -> None:
    decoded = decode(encode(message), type(message))
    assert type(decoded) is type(message)
    assert_equal_fields(message, decoded)


def assert_equal_fields(message: msgspec.Struct, decoded: msgspec.Struct) -> None:
    for sent, received in zip(msgspec.structs.astuple(message), msgspec.structs.astuple(decoded), strict=True):
        assert type(received) is type(sent)
        if isinstance(sent, np.ndarray):
            assert received.dtype == sent.dtype
            assert received.tobytes() == sent.tobytes()
            assert not received.flags.writeable
            assert received.flags.aligned
        elif isinstance(sent, msgspec.Struct):
            assert_equal_fields(sent, received)
        else:
            assert received == sent


@given(st.lists(st.floats(width=32)))
def test_any_losses_keep_their_bits(losses: list[float]) -> None:
    sent = Result(0, 0, np.array(losses, dtype=np.float32), DIGEST)
    assert decode(encode(sent), Result).losses.tobytes() == sent.losses.tobytes()


def test_strided_array_travels_as_its_values() -> None:
    sent = Result(0, 0, np.arange(10, dtype=np.float32)[::-3], DIGEST)
    assert decode(encode(sent), Result).losses.tolist() == [9, 6, 3, 0]


def test_bytes_are_those_of_the_documentation() -> None:
    losses = np.array([1.5, -2.0], dtype=np.float32)
    assert encode(Result(300, 64, losses, bytes(range(8)))).hex(" ") == (
        "96 03 cd 01 2c 40 93 a3 3c 66 34 91 02 c4 08 00 00 c0 3f 00 00 00 c0 c4 08 00 01 02 03 04 05 06 07 "
        "92 93 a3 7c 69 31 91 00 c4 00 93 a3 7c 75 31 91 00 c4 00"
    )


def test_every_truncation_is_refused(message: Message) -> None:
    payload = encode(message)
    for length in range(min(len(payload), 300)):
        with pytest.raises(RemoteProtocolError):
            decode(payload[:length], type(message))


@pytest.mark.parametrize("tag", [0, 2, 99, "1", None])
def test_other_tag_is_refused(tag: object) -> None:
    with pytest.raises(RemoteProtocolError, match="Hello"):
        decode(msgspec.msgpack.encode([tag, 1, "name", 1]), Hello)


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        (["<f8", [1], bytes(8)], "expected dtype '<f4', got '<f8'"),
        (["|O", [1], bytes(8)], "expected dtype '<f4', got '|O'"),
        (["<f4", [3], bytes(8)], "expected 3 x 4 bytes, got 8 bytes"),
        (["<f4", [-2], bytes(8)], "expected -2 x 4 bytes"),
        (["<f4", [2**60], b""], "expected"),
        (["<f4", [1, 2], bytes(8)], r"expected \[dtype, \[length\], bytes\]"),
        (["<f4", [], bytes(4)], r"expected \[dtype, \[length\], bytes\]"),
        (["<f4", [1.0], bytes(4)], r"expected \[dtype, \[length\], bytes\]"),
        (["<f4", [1], "text"], r"expected \[dtype, \[length\], bytes\]"),
        ([1.5, 2.5], r"expected \[dtype, \[length\], bytes\]"),
        (None, r"expected \[dtype, \[length\], bytes\]"),
    ],
)
def test_malformed_array_is_refused_with_the_reason(losses: object, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode(result_bytes(losses), Result)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="recursion"):
        decode(bytes([0x95, 3, 1, 0]) + b"\x91" * 100_000, Result)


def test_announced_length_allocates_nothing() -> None:
    with pytest.raises(RemoteProtocolError, match="truncated"):
        decode(bytes([0x95, 3, 1, 0]) + b"\xdd\xff\xff\xff\xff", Result)


@pytest.mark.parametrize(
    ("fields", "message_type"),
    [
        ([1, 1, "n" * 65, 1], Hello),
        ([1, 1, "\x1b[31mred", 1], Hello),
        ([1, 1, "name\n", 1], Hello),
        ([1, 1, b"name", 1], Hello),
        ([1, 1, "name", 0], Hello),
        ([1, -1, "name", 1], Hello),
        ([2, -1, DIGEST], Ready),
        ([2, 2**63, DIGEST], Ready),
        ([2, 1, bytes(7)], Ready),
        ([2, 1, bytes(9)], Ready),
        ([18, bytes(15), ["<u2", [0], b""]], TokenBlock),
        ([21, "whatever", "reason"], Farewell),
        ([21, "refused", "r" * 1001], Farewell),
    ],
)
def test_value_outside_its_limits_is_refused(fields: list[object], message_type: type[msgspec.Struct]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(msgspec.msgpack.encode(fields), message_type)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="utf-8"):
        decode(b"\x94\x01\x01\xa1\xff\x01", Hello)


def test_elements_of_a_later_version_are_ignored() -> None:
    assert decode(msgspec.msgpack.encode([5, "new"]), Ping) == Ping()


def test_reason_quotes_only_the_beginning_of_what_came() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(msgspec.msgpack.encode([21, "k" * 4000, "reason"]), Farewell)
    assert len(str(caught.value)) < 500


@given(st.binary(max_size=200), st.sampled_from([Hello, Result, Farewell, Update, TokenBlock]))
def test_junk_raises_nothing_but_remote_protocol_error(junk: bytes, message_type: type[msgspec.Struct]) -> None:
    tag = message_type.__struct_config__.tag
    assert isinstance(tag, int)
    n_fields = len(message_type.__struct_fields__)
    for payload in (junk, bytes([0x91 + n_fields, tag]) + junk, bytes([0x95, 3, 1, 0]) + junk):
        with suppress(RemoteProtocolError):
            decode(payload, message_type)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2), np.float32),
        np.zeros(2, ">f4"),
        np.zeros(2, np.complex64),
        np.array(["a"]),
        np.float32(1),
    ],
)
def test_array_that_cannot_travel_is_our_own_fault(array: NDArray[np.float32]) -> None:
    with pytest.raises(LocalProtocolError, match="Result: cannot be encoded"):
        encode(Result(0, 0, array, DIGEST))

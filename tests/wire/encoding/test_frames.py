from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.wire.encoding.frames import CHUNK_BYTES, HEADER_BYTES, Frame, FrameParser
from fedlearn.wire.errors import RemoteProtocolError
from tests.wire.cutting import split


def frames_of(data: bytes, cuts: list[int]) -> list[Frame]:
    parser = FrameParser()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [frame for start, end in pairwise(edges) for frame in parser.feed(data[start:end])]


def test_bytes_are_those_of_the_documentation() -> None:
    (frame,) = split(b"\x91\x05", message_type=5, stream=0)
    assert frame.hex(" ") == ("66 4c 01 05 00 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00 45 29 34 ba 91 05")


@given(
    st.integers(1, 3 * CHUNK_BYTES).map(lambda length: bytes(i % 251 for i in range(length))),
    st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=5),
)
def test_payload_survives_any_cut_of_the_bytes(payload: bytes, cuts: list[int]) -> None:
    frames = frames_of(b"".join(split(payload, message_type=17, stream=1)), cuts)
    assert b"".join(frame.payload for frame in frames) == payload
    assert [frame.chunk for frame in frames] == list(range(len(frames)))
    assert {(frame.message_type, frame.stream, frame.n_chunks) for frame in frames} == {(17, 1, len(frames))}


def test_frame_is_complete_with_its_last_byte_and_not_before() -> None:
    parser = FrameParser()
    (data,) = split(b"payload", message_type=5, stream=0)
    for byte in data[:-1]:
        assert list(parser.feed(bytes([byte]))) == []
        assert parser.is_inside_frame
    (frame,) = parser.feed(data[-1:])
    assert bytes(frame.payload) == b"payload"
    assert not parser.is_inside_frame


def test_no_changed_byte_goes_unnoticed() -> None:
    (data,) = split(b"payload", message_type=5, stream=0)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x04
        try:
            frames = frames_of(bytes(damaged), [])
        except RemoteProtocolError:
            continue
        assert frames == []
        assert position in range(16, 20), "only a longer payload length may leave the parser waiting"


def header(**changes: int) -> bytes:
    values = {"version": 1, "flags": 0, "stream": 0, "job": 0, "chunk": 0, "n_chunks": 1, "length": 1}
    values.update(changes)
    return (
        b"fL"
        + bytes([values["version"], 5, values["flags"], values["stream"]])
        + values["job"].to_bytes(2, "little")
        + b"".join(values[name].to_bytes(4, "little") for name in ("chunk", "n_chunks", "length"))
        + bytes(4)
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "frame version: expected 1, got 2"),
        ({"flags": 1}, "got flags 1"),
        ({"job": 1}, "got flags 0, job 1"),
        ({"stream": 2}, "stream 2"),
        ({"n_chunks": 0}, "chunk index: expected less than the count of 0"),
        ({"chunk": 1}, "chunk index: expected less than the count of 1, got 1"),
        ({"length": 0}, "payload length: .* got 0"),
        ({"length": CHUNK_BYTES + 1}, "payload length: .* got 65537"),
        ({"n_chunks": 2, "length": CHUNK_BYTES - 1}, "payload length: .* got 65535 in chunk 0 of 2"),
        ({"length": 2**32 - 1}, "payload length"),
        ({}, "checksum: expected 00000000"),
    ],
)
def test_header_outside_the_protocol_is_refused_with_the_reason(changes: dict[str, int], reason: str) -> None:
    data = header(**changes)
    assert len(data) == HEADER_BYTES
    with pytest.raises(RemoteProtocolError, match=reason):
        list(FrameParser().feed(data + b"x"))


def test_another_protocol_is_recognised() -> None:
    with pytest.raises(RemoteProtocolError, match="the peer does not speak fedlearn"):
        list(FrameParser().feed(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"))


@given(st.lists(st.binary(max_size=100)))
def test_junk_raises_nothing_but_remote_protocol_error(pieces: list[bytes]) -> None:
    parser = FrameParser()
    for piece in pieces:
        with suppress(RemoteProtocolError):
            assert list(parser.feed(b"fL\x01" + piece)) == []


def test_frame_that_announces_more_than_may_come_now_is_refused_at_its_header() -> None:
    (data,) = split(bytes(101), message_type=3, stream=1)
    parser = FrameParser(max_payload_bytes=100)
    with pytest.raises(RemoteProtocolError, match="expected at most 100 bytes for now, got 101"):
        list(parser.feed(data[:HEADER_BYTES]))
    later = FrameParser(max_payload_bytes=100)
    later.max_payload_bytes = 101
    assert len(list(later.feed(data))) == 1


@pytest.mark.parametrize("n_bytes", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_only_the_unfinished_frame_is_held(n_bytes: int) -> None:
    (data,) = split(bytes(101), message_type=3, stream=1)
    parser = FrameParser()
    assert len(list(parser.feed(data + data[:n_bytes]))) == 1
    assert parser.bytes_held == n_bytes

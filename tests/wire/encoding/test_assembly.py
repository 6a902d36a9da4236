import tracemalloc

import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.assembly import Assembly
from fedlearn.wire.encoding.frames import CHUNK_BYTES, Frame
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import DataBlock


def frame(chunk: int, n_chunks: int, length: int = CHUNK_BYTES) -> Frame:
    return Frame(message_type=17, stream=1, chunk=chunk, n_chunks=n_chunks, payload=memoryview(bytes(length)))


def begin(first: Frame, *, max_bytes: int = 2**32) -> Assembly:
    return Assembly(Snapshot, first, max_bytes=max_bytes, now=100.0)


def test_payload_is_given_with_the_last_chunk() -> None:
    assembly = begin(frame(0, 3))
    assert assembly.add(Snapshot, frame(0, 3)) is None
    assert assembly.add(Snapshot, frame(1, 3)) is None
    assert assembly.bytes_held == 2 * CHUNK_BYTES
    assert assembly.bytes_announced == 3 * CHUNK_BYTES
    payload = assembly.add(Snapshot, frame(2, 3, 5))
    assert payload is not None
    assert len(payload) == 2 * CHUNK_BYTES + 5


def test_too_many_chunks_are_refused_at_the_first() -> None:
    with pytest.raises(RemoteProtocolError, match="expected at most 131072 bytes, got 3 chunks"):
        begin(frame(0, 3), max_bytes=2 * CHUNK_BYTES)


def test_last_byte_over_the_limit_is_refused() -> None:
    assembly = begin(frame(0, 2), max_bytes=CHUNK_BYTES + 10)
    assembly.add(Snapshot, frame(0, 2))
    with pytest.raises(RemoteProtocolError, match="got more"):
        assembly.add(Snapshot, frame(1, 2, 11))


@pytest.mark.parametrize("wrong", [frame(0, 3), frame(2, 3), frame(1, 4)], ids=["repeated", "skipped", "other count"])
def test_chunk_out_of_order_is_refused(wrong: Frame) -> None:
    assembly = begin(frame(0, 3))
    assembly.add(Snapshot, frame(0, 3))
    with pytest.raises(RemoteProtocolError, match="chunk: expected 1 of 3 of Snapshot, got"):
        assembly.add(Snapshot, wrong)


def test_message_that_begins_in_the_middle_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="chunk: expected 0 of 3"):
        begin(frame(1, 3)).add(Snapshot, frame(1, 3))


def test_chunk_of_another_message_is_refused() -> None:
    assembly = begin(frame(0, 3))
    assembly.add(Snapshot, frame(0, 3))
    with pytest.raises(RemoteProtocolError, match="got 1 of 3 of DataBlock"):
        assembly.add(DataBlock, frame(1, 3))


def test_memory_grows_with_what_arrived_not_with_what_was_announced() -> None:
    first = frame(0, 40_000)
    tracemalloc.start()
    begin(first).add(Snapshot, first)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * CHUNK_BYTES


def test_deadline_allows_ten_seconds_and_thirty_more_per_mebibyte() -> None:
    assert begin(frame(0, 32)).deadline == pytest.approx(100.0 + 10.0 + 2 * 30.0)

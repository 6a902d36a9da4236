from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.encoding.frames import CHUNK_BYTES, HEADER_BYTES, FrameParser
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import Assignment, DataBlock, Farewell, Goodbye, Hello, Ping, Result
from fedlearn.wire.outbox import Outbox
from fedlearn.wire.states import MessageType

NAMES = {
    kind.__struct_config__.tag: kind.__name__
    for kind in (Assignment, DataBlock, Farewell, Goodbye, Hello, Ping, Result, Snapshot, Update)
}


def drained(outbox: Outbox) -> list[str]:
    parser = FrameParser()
    names = []
    while data := outbox.next_frame():
        names += [NAMES[frame.message_type] for frame in parser.feed(data)]
    return names


def filled(*message_types: MessageType) -> Outbox:
    outbox = Outbox()
    for message_type in message_types:
        outbox.put(Parcel(message_type, bytes(CHUNK_BYTES + 1) if message_type is Snapshot else b"\x90"))
    return outbox


def test_control_overtakes_data_which_keeps_its_order() -> None:
    outbox = filled(Snapshot, DataBlock, Update, Ping)
    assert drained(outbox) == ["Ping", "Snapshot", "Snapshot", "DataBlock", "Update"]


def test_hello_stays_before_a_ping() -> None:
    assert drained(filled(Hello, Ping)) == ["Hello", "Ping"]


def test_goodbye_lets_results_go_first() -> None:
    assert drained(filled(Result, Result, Ping, Goodbye)) == ["Ping", "Result", "Result", "Goodbye"]


def test_farewell_waits_for_an_update_but_cuts_a_snapshot() -> None:
    assert drained(filled(Update, Snapshot, Update, Farewell)) == ["Update", "Farewell"]


def test_farewell_cuts_a_snapshot_that_has_begun() -> None:
    outbox = filled(Snapshot)
    assert len(outbox.next_frame()) > CHUNK_BYTES
    outbox.put(Parcel(Farewell, b"\x90"))
    assert drained(outbox) == ["Farewell"]


def test_bytes_queued_falls_with_every_frame_to_nothing() -> None:
    outbox = filled(Snapshot)
    assert outbox.bytes_queued == CHUNK_BYTES + 1
    outbox.next_frame()
    assert outbox.bytes_queued == 1
    outbox.next_frame()
    assert outbox.bytes_queued == 0


def test_bytes_queued_are_those_that_a_farewell_leaves() -> None:
    outbox = filled(Update, Snapshot)
    outbox.put(Parcel(Farewell, b"\x90\x90"))
    assert outbox.bytes_queued == 3
    outbox = filled(Snapshot, Update)
    outbox.next_frame()
    outbox.put(Parcel(Farewell, b"\x90\x90"))
    assert outbox.bytes_queued == 2


def test_farewell_lets_a_block_that_has_begun_end() -> None:
    outbox = Outbox()
    outbox.put(Parcel(DataBlock, bytes(CHUNK_BYTES + 1)))
    outbox.next_frame()
    outbox.put(Parcel(Farewell, b"\x90"))
    assert outbox.bytes_queued == 2
    assert len(outbox.next_frame()) == HEADER_BYTES + 1
    assert drained(outbox) == ["Farewell"]


def test_weights_wait_until_their_last_frame_has_left() -> None:
    outbox = filled(Update, Snapshot)
    for _ in range(2):
        outbox.next_frame()
        assert outbox.has_weights
    outbox.next_frame()
    assert not outbox.has_weights


def test_cleared_outbox_gives_nothing() -> None:
    outbox = filled(Ping, Snapshot, Farewell)
    outbox.clear()
    assert outbox.next_frame() == b""
    assert outbox.bytes_queued == 0


def test_dropped_steps_leave_what_has_begun_and_what_is_no_step() -> None:
    outbox = Outbox()
    for kind, size in ((Update, CHUNK_BYTES + 1), (Assignment, 2), (DataBlock, 3), (Update, 4), (Result, 5)):
        outbox.put(Parcel(kind, bytes(size)))
    assert outbox.update_bytes == CHUNK_BYTES + 5
    outbox.next_frame()
    outbox.drop_steps()
    assert outbox.bytes_queued == 1 + 3 + 5
    assert drained(outbox) == ["Update", "DataBlock", "Result"]
    assert outbox.bytes_queued == 0


def test_step_that_has_not_begun_is_dropped() -> None:
    outbox = filled(Update, Assignment, Ping)
    outbox.drop_steps()
    assert (outbox.bytes_queued, outbox.update_bytes) == (1, 0)
    assert drained(outbox) == ["Ping"]

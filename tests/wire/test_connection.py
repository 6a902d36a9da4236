import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.frames import CHUNK_BYTES, HEADER_BYTES, FrameParser
from fedlearn.wire.encoding.parcel import stream_of
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import (
    Assignment,
    Challenge,
    Farewell,
    FromClient,
    FromNextSeat,
    FromSeatBefore,
    FromServer,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Proof,
    Ready,
    Result,
    Start,
    Welcome,
)
from fedlearn.wire.states import MessageType, State, next_state
from tests.wire.conftest import EXAMPLES
from tests.wire.cutting import split
from tests.wire.pair import CONVERSATION, OF_SEATS, ConnectionPair, Examples, Side, pair_in


def as_bytes(message: Message) -> bytes:
    tag = message.__struct_config__.tag
    assert isinstance(tag, int)
    return b"".join(split(encode(message), message_type=tag, stream=stream_of(type(message))))


def leased(pair: ConnectionPair, *, n_members: int) -> None:
    """The server hands out a lease of so many members, summed like that of the example."""
    assignment = EXAMPLES[Assignment]
    assert isinstance(assignment, Assignment)
    pair.say("server", msgspec.structs.replace(assignment, quota=n_members))


@pytest.fixture
def active(examples: Examples) -> ConnectionPair:
    return pair_in(State.ACTIVE, examples)


@pytest.mark.parametrize("piece_bytes", [2**30, 4099, 1])
def test_whole_conversation_arrives_whatever_the_pieces(examples: Examples, piece_bytes: int) -> None:
    pair = ConnectionPair(piece_bytes=piece_bytes)
    for side, message_type, state in CONVERSATION:
        pair.say(side, examples[message_type])
        assert pair.client.state is pair.server.state is state
    pairs: list[tuple[Side, Side]] = [("client", "server"), ("server", "client")]
    for listener, speaker in pairs:
        said = [message_type for side, message_type, _ in CONVERSATION if side == speaker]
        assert [type(message) for message in pair.received[listener]] == said
    assert pair.client.bytes_out == pair.server.bytes_in > 0
    assert pair.server.bytes_out == pair.client.bytes_in > 0
    assert pair.client.is_over
    assert pair.server.is_over


def test_who_begins_at_its_own_start_is_sent_updates_before_it_is_ready(examples: Examples) -> None:
    pair = pair_in(State.WELCOMED, examples)
    for side, message_type, state in (
        ("server", Start, State.SYNCING),
        ("server", Update, State.SYNCING),
        ("server", Update, State.SYNCING),
        ("client", Ready, State.ACTIVE),
    ):
        pair.say("server" if side == "server" else "client", examples[message_type])
        assert pair.client.state is pair.server.state is state


def test_after_a_resync_only_a_snapshot_helps(examples: Examples) -> None:
    pair = pair_in(State.RESYNCING, examples)
    with pytest.raises(LocalProtocolError, match="Start: may not be sent when the server said Resync"):
        pair.server.send(examples[Start])


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("side", ["client", "server"])
def test_illegal_message_is_refused_by_both_ends(state: State, side: Side, examples: Examples) -> None:
    other: Side = "server" if side == "client" else "client"
    if state in OF_SEATS:
        own = (FromSeatBefore if side == "client" else FromNextSeat).__args__
    else:
        own = (FromClient if side == "client" else FromServer).__args__
    for message_type, message in examples.items():
        if message_type in own and next_state(state, message_type) is not None:
            continue
        pair = pair_in(state, examples)
        with pytest.raises(LocalProtocolError, match=f"{message_type.__name__}: may not be sent when"):
            pair.ends[side].send(message)
        assert pair.ends[side].data_to_send() == b""
        with pytest.raises(
            RemoteProtocolError, match=r"may not come when|message type: expected one of|at most 4096 bytes"
        ):
            pair.ends[other].receive_data(as_bytes(message), 0.0)


@pytest.mark.parametrize("state", [state for state in State if state is not State.OPENING])
def test_either_side_may_part_at_any_time_after_hello(state: State, examples: Examples) -> None:
    partings: list[tuple[Side, MessageType]] = [("client", Goodbye), ("server", Farewell)]
    for side, message_type in partings:
        pair = pair_in(state, examples)
        pair.say(side, examples[message_type])
        assert pair.client.is_over
        assert pair.server.is_over


@pytest.mark.parametrize(("side", "last_word"), [("client", Goodbye), ("server", Farewell)])
def test_nothing_follows_a_parting_word(
    active: ConnectionPair, examples: Examples, side: Side, last_word: MessageType
) -> None:
    other: Side = "server" if side == "client" else "client"
    active.say(side, examples[last_word])
    for end in active.ends.values():
        with pytest.raises(LocalProtocolError, match="one side has parted"):
            end.send(Ping())
        end.tick(29.0)
        assert end.data_to_send() == b""
    with pytest.raises(RemoteProtocolError, match="the sender has parted"):
        active.ends[other].receive_data(as_bytes(Ping()), 0.0)


def test_results_that_cross_a_farewell_are_still_received(active: ConnectionPair, examples: Examples) -> None:
    active.server.send(examples[Farewell])
    active.server.data_to_send()
    assert active.server.is_over
    messages = active.server.receive_data(as_bytes(Ping()) + as_bytes(examples[Result]), 0.0)
    assert [type(message) for message in messages] == [Result]
    assert active.server.data_to_send() == b""


def test_result_queued_before_goodbye_arrives(active: ConnectionPair, examples: Examples) -> None:
    active.client.send(examples[Result])
    active.client.send(examples[Goodbye])
    active.shuttle()
    assert [type(message) for message in active.received["server"][-2:]] == [Result, Goodbye]


def test_farewell_ends_a_snapshot_in_the_middle(examples: Examples) -> None:
    pair = pair_in(State.WELCOMED, examples)
    pair.server.send(examples[Snapshot])
    pair.client.receive_data(pair.server.data_to_send(1), 0.0)
    pair.say("server", examples[Farewell])
    assert [type(message) for message in pair.received["client"]] == [Challenge, Welcome, Farewell]


def test_rest_of_a_snapshot_is_not_sent_to_a_client_that_left(examples: Examples) -> None:
    pair = pair_in(State.WELCOMED, examples)
    pair.server.send(examples[Snapshot])
    pair.server.data_to_send(1)
    pair.server.receive_data(as_bytes(examples[Goodbye]), 0.0)
    assert pair.server.is_over
    assert pair.server.data_to_send() == b""


def test_ping_overtakes_the_chunks_of_a_snapshot(examples: Examples) -> None:
    pair = pair_in(State.WELCOMED, examples)
    pair.server.send(examples[Snapshot])
    first = pair.server.data_to_send(1)
    pair.server.tick(1.0)
    pair.server.tick(11.0)
    assert pair.client.receive_data(first + pair.server.data_to_send(1), 11.0) == []
    assert pair.client.data_to_send() == as_bytes(Pong())
    pair.shuttle()
    assert type(pair.received["client"][-1]) is Snapshot


def test_pongs_are_not_piled_up_for_a_peer_that_does_not_read(active: ConnectionPair) -> None:
    active.client.receive_data(as_bytes(Ping()) * 1000, 0.0)
    assert active.client.data_to_send() == as_bytes(Pong())


def test_message_larger_than_its_limit_is_refused_on_either_side(active: ConnectionPair) -> None:
    too_large = Result(0, 0, np.zeros(10 * 2**20, np.float32), bytes(8))
    with pytest.raises(LocalProtocolError, match="Result: expected at most 37752832 bytes"):
        active.client.send(too_large)
    leased(active, n_members=2**24)
    with pytest.raises(RemoteProtocolError, match="Result: expected at most 100667392 bytes"):
        active.server.receive_data(as_bytes(Result(0, 0, np.zeros(26 * 2**20, np.float32), bytes(8))), 0.0)


def test_snapshot_limit_is_checked_at_the_first_chunk(examples: Examples) -> None:
    client = Connection("client", now=0.0, max_snapshot_bytes=100_000)
    client.send(examples[Hello])
    client.receive_data(as_bytes(examples[Challenge]), 0.0)
    client.send(examples[Proof])
    client.receive_data(as_bytes(examples[Welcome]), 0.0)
    snapshot = as_bytes(examples[Snapshot])
    client.receive_data(snapshot[:1000], 0.0)
    with pytest.raises(RemoteProtocolError, match="Snapshot: expected at most 100000 bytes, got 10 chunks"):
        client.receive_data(snapshot[1000:70_000], 0.0)


def test_message_on_the_other_stream_is_refused(active: ConnectionPair) -> None:
    (data,) = split(encode(Ping()), message_type=5, stream=1)
    with pytest.raises(RemoteProtocolError, match="Ping: expected stream 0, got 1"):
        active.server.receive_data(data, 0.0)


def test_tag_that_differs_from_the_header_is_refused(active: ConnectionPair) -> None:
    (data,) = split(encode(Ping()), message_type=6, stream=0)
    with pytest.raises(RemoteProtocolError, match="Pong: Invalid value 5"):
        active.server.receive_data(data, 0.0)


def test_unknown_message_type_is_refused(active: ConnectionPair) -> None:
    (data,) = split(b"\x91\x63", message_type=99, stream=0)
    with pytest.raises(RemoteProtocolError, match=r"message type: expected one of .*, got 99"):
        active.server.receive_data(data, 0.0)


def test_ping_follows_ten_seconds_of_having_sent_nothing(active: ConnectionPair) -> None:
    active.client.tick(1.0)
    active.client.tick(10.9)
    assert active.client.data_to_send() == b""
    active.client.tick(11.0)
    assert active.client.data_to_send() == as_bytes(Ping())
    active.client.tick(12.0)
    active.client.tick(21.9)
    assert active.client.data_to_send() == b""
    active.client.tick(22.0)
    assert active.client.data_to_send() == as_bytes(Ping())


def test_no_ping_before_hello() -> None:
    client = Connection("client", now=0.0)
    client.tick(20.0)
    assert client.data_to_send() == b""


def test_idle_ends_keep_each_other_alive(active: ConnectionPair) -> None:
    for second in range(1, 200):
        active.now = float(second)
        for end in active.ends.values():
            end.tick(active.now)
        active.shuttle()
    assert active.client.bytes_out < 3000


def test_silent_peer_is_gone_after_thirty_seconds(active: ConnectionPair) -> None:
    for end in active.ends.values():
        end.receive_data(as_bytes(Ping()), 130.0)
        end.tick(159.9)
        with pytest.raises(RemoteProtocolError, match="expected a message"):
            end.tick(160.0)


def test_client_that_was_welcomed_just_now_may_be_silent_for_longer(active: ConnectionPair) -> None:
    active.server.tick(119.9)
    with pytest.raises(RemoteProtocolError, match="expected a message"):
        active.server.tick(120.0)
    with pytest.raises(RemoteProtocolError, match="expected a message"):
        active.client.tick(30.0)


@pytest.mark.parametrize("state", [State.GREETED, State.CHALLENGED, State.PROVEN])
def test_client_that_was_not_welcomed_may_not(state: State, examples: Examples) -> None:
    server = pair_in(state, examples).server
    server.tick(29.9)
    with pytest.raises(RemoteProtocolError, match="expected a message"):
        server.tick(30.0)


def test_time_in_which_this_side_did_not_run_counts_for_nothing(active: ConnectionPair) -> None:
    active.server.receive_data(as_bytes(Ping())[:5], 130.0)
    for end in active.ends.values():
        end.excuse(200.0)
    active.client.tick(229.9)
    with pytest.raises(RemoteProtocolError, match="expected a message"):
        active.client.tick(230.0)
    active.server.tick(339.9)
    with pytest.raises(RemoteProtocolError, match="frame: expected its end"):
        active.server.tick(340.0)


def test_client_that_never_says_hello_is_gone_after_ten_seconds() -> None:
    server = Connection("server", now=5.0)
    server.receive_data(b"fL", 10.0)
    server.tick(14.9)
    with pytest.raises(RemoteProtocolError, match="expected a Hello within 10 s"):
        server.tick(15.0)
    client = Connection("client", now=5.0)
    client.tick(15.0)


def test_frame_that_trickles_is_cut(active: ConnectionPair, examples: Examples) -> None:
    data = as_bytes(examples[Result])
    for second in range(10):
        active.server.receive_data(data[second : second + 1], float(second))
        active.server.tick(float(second))
    with pytest.raises(RemoteProtocolError, match="frame: expected its end within 10 s"):
        active.server.tick(10.0)


def test_frame_has_its_own_time_after_one_that_was_complete(active: ConnectionPair) -> None:
    ping = as_bytes(Ping())
    active.server.receive_data(ping[:5], 0.0)
    active.server.receive_data(ping[5:] + ping[:5], 9.0)
    active.server.tick(18.0)
    active.server.receive_data(ping[5:], 18.0)
    active.server.tick(40.0)


def test_message_that_stalls_is_cut_although_pings_arrive(active: ConnectionPair) -> None:
    leased(active, n_members=2**19)
    result = Result(0, 0, np.zeros(2**19, np.float32), bytes(8))
    first_chunk = as_bytes(result)[: HEADER_BYTES + 64 * 1024]
    active.server.receive_data(first_chunk, 0.0)
    limit_s = 10.0 + 30.0 * 33 / 16
    for second in range(0, int(limit_s), 10):
        active.server.receive_data(as_bytes(Ping()), float(second))
        active.server.tick(float(second))
    active.server.tick(limit_s - 0.1)
    with pytest.raises(RemoteProtocolError, match="Result: expected its last chunk by now"):
        active.server.tick(limit_s)


def test_a_message_has_the_time_in_which_this_side_did_not_run(active: ConnectionPair) -> None:
    leased(active, n_members=2**19)
    result = Result(0, 0, np.zeros(2**19, np.float32), bytes(8))
    active.server.receive_data(as_bytes(result)[: HEADER_BYTES + 64 * 1024], 0.0)
    active.server.excuse(1000.0)
    limit_s = 10.0 + 30.0 * 33 / 16
    active.server.receive_data(as_bytes(Ping()), 1050.0)
    active.server.tick(1000.0 + limit_s - 0.1)
    with pytest.raises(RemoteProtocolError, match="Result: expected its last chunk by now"):
        active.server.tick(1000.0 + limit_s)


def test_a_message_that_came_in_part_is_arriving(active: ConnectionPair) -> None:
    leased(active, n_members=2**17)
    message = as_bytes(Result(0, 0, np.zeros(2**17, np.float32), bytes(8)))
    cut = 3 * (HEADER_BYTES + CHUNK_BYTES)
    seen = [active.server.arriving]
    for part in (message[:cut], message[cut:]):
        active.server.receive_data(part, 0.0)
        seen.append(active.server.arriving)
    assert seen == [None, (3 * CHUNK_BYTES, 9 * CHUNK_BYTES), None]


def test_message_in_time_leaves_no_deadline_behind(active: ConnectionPair) -> None:
    leased(active, n_members=2**17)
    active.server.receive_data(as_bytes(Result(0, 0, np.zeros(2**17, np.float32), bytes(8))), 0.0)
    active.server.receive_data(as_bytes(Ping()), 1000.0)
    active.server.tick(1000.0)
    assert active.server.bytes_held == 0


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32))
def test_junk_raises_nothing_but_remote_protocol_error(junk: bytes, seed: int) -> None:
    generator = random.Random(seed)
    server = Connection("server", now=0.0)
    server.receive_data(as_bytes(Hello(1, "name", 1)), 0.0)
    valid = bytearray(as_bytes(Goodbye("text")) + as_bytes(Ready(1, bytes(8))))
    for _ in range(generator.randrange(4)):
        valid[generator.randrange(len(valid))] = generator.randrange(256)
    framed = b"".join(split(junk, message_type=generator.choice([1, 2, 3, 4, 5, 6]), stream=generator.randrange(2)))
    for data in (framed, bytes(valid), junk):
        try:
            server.receive_data(data, 0.0)
        except RemoteProtocolError:
            continue


def test_a_step_of_messages_is_within_its_traffic(examples: Examples, active: ConnectionPair) -> None:
    n_members = 12_000
    values = {name: getattr(examples[Update], name) for name in Update.__struct_fields__}
    update = Update(**(values | {"utilities": np.ones(n_members, np.int8)}))
    before = active.server.bytes_in + active.server.bytes_out
    active.say("server", examples[Assignment])
    active.say("client", Result(12, 0, np.ones(n_members, np.float32), bytes(8)))
    active.say("server", update)
    traffic = active.server.bytes_in + active.server.bytes_out - before
    assert traffic <= 5 * n_members + 500


def test_every_message_takes_one_header_per_chunk(message: Message) -> None:
    data = as_bytes(message)
    n_frames = len(list(FrameParser().feed(data)))
    assert len(data) == len(encode(message)) + n_frames * HEADER_BYTES
    assert isinstance(message, msgspec.Struct)

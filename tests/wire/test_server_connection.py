"""What a server takes from a client in each state, and how it parts from one that goes beyond."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.update import Update
from fedlearn.wire import limits
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.frames import CHUNK_BYTES, HEADER_BYTES
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.errors import FloodError, RemoteProtocolError
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Activations,
    Assignment,
    Challenge,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ping,
    Proof,
    Ready,
    Result,
    Resync,
    Seat,
    Welcome,
)
from fedlearn.wire.quota import MESSAGES, MESSAGES_PER_LEASE, STRANGERS_MESSAGES
from fedlearn.wire.states import MessageType, State
from tests.wire.cutting import split

Examples = dict[MessageType, Message]
ESTIMATE_BYTES = 3000
SUMMED = Perturbation(0.02, 1, "activations", "closed-form", 0.05, 0.8)
REPLAYED = Perturbation(0.02, 1)


def bytes_of(message: Message) -> bytes:
    parcel = pack(message)
    return b"".join(parcel.frame(number) for number in range(parcel.n_frames))


def syncing(examples: Examples) -> Connection:
    server = Connection("server", now=0.0, estimate_bytes=ESTIMATE_BYTES)
    server.receive_data(bytes_of(examples[Hello]), 0.0)
    server.send(examples[Challenge])
    server.receive_data(bytes_of(examples[Proof]), 0.0)
    server.send(examples[Welcome])
    server.send(examples[Snapshot])
    return server


@pytest.fixture
def ready(examples: Examples) -> Connection:
    server = syncing(examples)
    server.data_to_send(2**30)
    server.receive_data(bytes_of(examples[Ready]), 0.0)
    return server


def lease(
    server: Connection, quota: int, perturbation: Perturbation = REPLAYED, shaping: Shaping | None = None
) -> None:
    server.send(Assignment(12, b"", perturbation, 16, 0, quota, 1.0, shaping))


def result(n_members: int, n_parameters: int = 0) -> bytes:
    estimate = CodedEstimate(np.zeros(n_parameters, np.int8), np.zeros(0, np.uint8))
    return bytes_of(Result(12, 0, np.zeros(n_members, np.float32), bytes(8), estimate))


@pytest.mark.parametrize("data", [result(1000)[:-1], result(1020)])
def test_without_a_lease_a_message_has_4_kib(ready: Connection, data: bytes) -> None:
    if len(data) < limits.MAX_SMALL_BYTES:
        ready.receive_data(data, 0.0)
        assert ready.bytes_held == len(data)
        return
    with pytest.raises(RemoteProtocolError, match="expected at most 4096 bytes for now"):
        ready.receive_data(data, 0.0)


def test_with_a_lease_a_result_has_the_losses_of_its_members(ready: Connection) -> None:
    lease(ready, 50_000)
    assert len(ready.receive_data(result(50_000), 0.0)) == 1
    with pytest.raises(RemoteProtocolError, match="Result: expected at most 204096 bytes"):
        ready.receive_data(result(52_000), 0.0)


def test_an_estimate_has_its_bytes_only_where_the_lease_asks_for_one(ready: Connection) -> None:
    with pytest.raises(RemoteProtocolError, match="at most 4096 bytes"):
        ready.receive_data(result(16, 4200), 0.0)


def test_an_estimate_has_the_bytes_that_a_sum_of_rounded_ones_may_take(ready: Connection) -> None:
    lease(ready, 16, SUMMED)
    assert len(ready.receive_data(result(16, 4 * ESTIMATE_BYTES), 0.0)) == 1
    with pytest.raises(RemoteProtocolError, match="expected at most 16160 bytes"):
        ready.receive_data(result(16, 16200), 0.0)


@pytest.mark.parametrize(("quota", "width"), [(16, 2), (272, 3), (70_000, 4)])
def test_an_exact_estimate_has_the_bytes_that_the_members_of_the_lease_can_fill(
    ready: Connection, quota: int, width: int
) -> None:
    lease(ready, quota, REPLAYED, Shaping("sign", 1.0))
    assert len(ready.receive_data(result(16, width * ESTIMATE_BYTES), 0.0)) == 1
    most = 4 * quota + width * ESTIMATE_BYTES + limits.MAX_SMALL_BYTES
    with pytest.raises(RemoteProtocolError, match=f"expected at most {most} bytes"):
        ready.receive_data(result(16, most), 0.0)


def test_a_result_of_the_lease_before_may_still_be_on_its_way(ready: Connection) -> None:
    lease(ready, 50_000)
    lease(ready, 16)
    assert len(ready.receive_data(result(50_000), 0.0)) == 1


def test_a_chunk_without_a_lease_is_not_even_waited_for(ready: Connection) -> None:
    with pytest.raises(RemoteProtocolError, match="got 65536"):
        ready.receive_data(result(2**16)[:HEADER_BYTES], 0.0)


def test_a_lease_bounds_what_an_unfinished_result_holds(ready: Connection) -> None:
    lease(ready, 2**15)
    data = result(2**16)  # twice as large, announced as it should be
    with pytest.raises(RemoteProtocolError, match="Result: expected at most"):
        ready.receive_data(data, 0.0)
    assert ready.bytes_held < CHUNK_BYTES + HEADER_BYTES


def test_ready_before_the_weights_have_left_is_refused(examples: Examples) -> None:
    server = syncing(examples)
    server.data_to_send(CHUNK_BYTES)
    with pytest.raises(RemoteProtocolError, match="Ready: expected it after the weights"):
        server.receive_data(bytes_of(examples[Ready]), 0.0)


@pytest.mark.parametrize("flood", [bytes_of(Ping()), result(1)])
def test_stranger_has_few_messages(ready: Connection, flood: bytes) -> None:
    n_left = int(STRANGERS_MESSAGES) - 3  # Hello, Proof and Ready were said
    ready.receive_data(flood * n_left, 0.0)
    with pytest.raises(FloodError, match="messages: expected at most"):
        ready.receive_data(flood, 0.0)


def test_volunteer_has_more_and_not_without_end(ready: Connection) -> None:
    for _ in range(100):
        lease(ready, 16)
    ready.receive_data(bytes_of(Ping()) * int(MESSAGES), 0.0)
    with pytest.raises(FloodError):
        ready.receive_data(bytes_of(Ping()), 0.0)


def test_every_lease_pays_for_its_results_however_short_the_steps(ready: Connection) -> None:
    for _ in range(10_000):
        lease(ready, 16)
        ready.receive_data(result(8) * (int(MESSAGES_PER_LEASE) - 1), 0.0)


def test_every_lease_pays_for_its_bytes(ready: Connection) -> None:
    for _ in range(100):
        lease(ready, 50_000, SUMMED)
        ready.receive_data(result(25_000, ESTIMATE_BYTES) * 2, 0.0)
    with pytest.raises(FloodError, match="bytes: expected at most"):
        ready.receive_data(result(50_000) * 20, 0.0)


def test_time_fills_the_buckets(ready: Connection) -> None:
    for second in range(1, 600):
        ready.receive_data(bytes_of(Ping()) * 5 + result(16), float(second))


def test_client_takes_what_a_server_sends_however_much(examples: Examples) -> None:
    client = Connection("client", now=0.0)
    client.send(examples[Hello])
    assert client.receive_data(bytes_of(Ping()) * 10_000, 0.0) == []


def test_last_word_may_be_said_in_every_state_and_takes_the_place_of_what_waits(examples: Examples) -> None:
    for server in (Connection("server", now=0.0), syncing(examples)):
        client = Connection("client", now=0.0)
        client.send(examples[Hello])
        word = server.last_word("try_again", "the server\nis full" + "!" * 2000)
        (farewell,) = client.receive_data(word, 0.0)
        assert farewell == Farewell("try_again", ("the server?is full" + "!" * 2000)[:1000])
        assert server.data_to_send() == b""
        assert server.is_over
        assert server.bytes_out >= len(word)
        assert server.last_word("refused", "again") == b""


def test_client_has_a_last_word_once_it_has_said_hello() -> None:
    client, server = Connection("client", now=0.0), Connection("server", now=0.0)
    assert client.last_word("refused", "too early") == b""
    client.send(Hello(PROTOCOL_VERSION, "Ada", 1))
    server.receive_data(client.data_to_send(), 0.0)
    assert server.receive_data(client.last_word("refused", "why"), 0.0) == [Goodbye("why")]
    assert client.last_word("refused", "again") == b""


def test_nothing_is_held_for_a_peer_that_is_gone(ready: Connection, examples: Examples) -> None:
    lease(ready, 2**16)
    ready.send(examples[Resync])
    ready.send(examples[Snapshot])
    ready.receive_data(result(2**16)[:-1], 0.0)
    assert ready.bytes_held > CHUNK_BYTES
    assert len(list(ready.parcels())) == 2
    ready.forget()
    assert (ready.bytes_held, ready.bytes_queued, list(ready.parcels())) == (0, 0, [])


def test_hello_of_another_version_is_told_apart_whatever_else_is_in_it() -> None:
    payload = msgspec.msgpack.encode([1, PROTOCOL_VERSION + 1, {"name": "Ada"}, [1, 2], b"token"])
    (data,) = split(payload, message_type=1, stream=0)
    with pytest.raises(RemoteProtocolError) as caught:
        Connection("server", now=0.0).receive_data(data, 0.0)
    assert str(caught.value) == (
        f"protocol version: expected {PROTOCOL_VERSION}, got {PROTOCOL_VERSION + 1}; "
        "install the fedlearn version of the server"
    )


@pytest.mark.parametrize("fields", [[1, PROTOCOL_VERSION, 7, 7], [1, "9", "name", 1], [1], "text"])
def test_hello_that_is_wrong_in_itself_is_refused_for_that(fields: object) -> None:
    (data,) = split(msgspec.msgpack.encode(fields), message_type=1, stream=0)
    server = Connection("server", now=0.0)
    with pytest.raises(RemoteProtocolError, match="Hello: "):
        server.receive_data(data, 0.0)
    assert server.state is State.OPENING


def test_resync_takes_the_place_of_steps_that_wait(ready: Connection, examples: Examples) -> None:
    assert ready.update_bytes_queued == 0
    ready.send(examples[Update])
    ready.send(examples[Assignment])
    assert ready.update_bytes_queued == pack(examples[Update]).length_bytes
    ready.send(examples[Resync])
    assert ready.data_to_send(2**30) == bytes_of(examples[Resync])
    ready.send(examples[Snapshot])
    ready.send(examples[Update])
    assert ready.update_bytes_queued == 0, "they are of use once the weights are there"
    assert ready.data_to_send(2**30) == bytes_of(examples[Snapshot]) + bytes_of(examples[Update])


SEAT = Seat(1, (2,), 1, 0, "float32", 4, 2, 5000, 0)


def in_a_crew(examples: Examples, seat: Seat = SEAT) -> Connection:
    """A seat that holds its part."""
    server = Connection("server", now=0.0, estimate_bytes=ESTIMATE_BYTES)
    server.receive_data(bytes_of(examples[Hello]), 0.0)
    server.send(examples[Challenge])
    server.receive_data(bytes_of(examples[Proof]), 0.0)
    server.send(examples[Welcome])
    server.send(seat)
    server.send(examples[Snapshot])
    server.data_to_send(2**30)
    server.receive_data(bytes_of(examples[Ready]), 0.0)
    return server


def activations(n_bytes: int) -> bytes:
    return bytes_of(Activations(12, 0, 4, bytes(8), bytes(n_bytes)))


def test_activations_are_as_large_as_the_seat_makes_them(examples: Examples) -> None:
    server = in_a_crew(examples)
    lease(server, 64)
    assert len(server.receive_data(activations(4 * 5000), 0.0)) == 1
    with pytest.raises(RemoteProtocolError, match="expected at most 24096 bytes"):
        server.receive_data(activations(4 * 5000 + limits.MAX_SMALL_BYTES), 0.0)


def test_activations_need_a_seat(ready: Connection) -> None:
    lease(ready, 64)
    with pytest.raises(RemoteProtocolError, match="Activations: expected at most 0 bytes"):
        ready.receive_data(activations(10), 0.0)


def test_a_seat_may_send_what_its_leases_amount_to_and_no_more(examples: Examples) -> None:
    server = in_a_crew(examples)
    lease(server, 4000)
    for _ in range(1000):
        server.receive_data(activations(4 * 5000), 0.0)
    too_much = 1100 * activations(4 * 5000)
    with pytest.raises(FloodError):
        server.receive_data(too_much, 0.0)


def test_activations_are_passed_on_in_the_frames_that_they_came_in(examples: Examples) -> None:
    leader, follower = in_a_crew(examples), in_a_crew(examples)
    lease(leader, 64)
    for n_bytes in (5, 17_000):
        came = activations(n_bytes)
        (said,) = leader.receive_data(came, 0.0)
        follower.send(said)
        assert follower.data_to_send(2**30).endswith(came)


def test_large_activations_are_passed_on_in_the_frames_that_they_came_in(examples: Examples) -> None:
    seat = msgspec.structs.replace(SEAT, member_bytes=50_000)
    leader, follower = in_a_crew(examples, seat), in_a_crew(examples, seat)
    lease(leader, 64)
    parcel = pack(Activations(12, 0, 4, bytes(8), bytes(range(250)) * 800))
    came = b"".join(parcel.frame(number) for number in range(parcel.n_frames))
    assert parcel.n_frames == 4
    pieces = [came[start : start + 999] for start in range(0, len(came), 999)]
    (said,) = [message for piece in pieces for message in leader.receive_data(piece, 0.0)]
    follower.send(said)
    assert follower.data_to_send(2**30).endswith(came)

import re
import tracemalloc
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.optimizers.clipup import ClipUp
from fedlearn.es.optimizers.lion import Lion
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.encoding import codec
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import (
    Activations,
    Assignment,
    Credit,
    DataBlock,
    Farewell,
    Hello,
    Message,
    Ping,
    Ready,
    Result,
    Seat,
    Start,
    Welcome,
)

DIGEST = bytes(8)
SMALL_UPDATE = Update(
    300, b"", ((0, 2),), np.array([5, -5], np.int8), 1, 2, -0.5, Sgd(0.25, 0.5), False, 0.0, "zero", 1.5, 2.0
)
SMALL_RESULT = Result(1, 0, np.zeros(1, np.float32), DIGEST)


def result_bytes(losses: object) -> bytes:
    return msgspec.msgpack.encode([3, 12, 0, losses, DIGEST])


def test_every_message_comes_back_equal(message: Message) -> None:
    decoded = decode(encode(message), type(message))
    assert type(decoded) is type(message)
    assert_equal_fields(message, decoded)


def assert_equal_fields(message: msgspec.Struct, decoded: msgspec.Struct) -> None:
    for sent, received in zip(msgspec.structs.astuple(message), msgspec.structs.astuple(decoded), strict=True):
        assert_equal(sent, received)


def assert_equal(sent: object, received: object) -> None:
    assert type(received) is type(sent)
    if isinstance(sent, np.ndarray) and isinstance(received, np.ndarray):
        assert received.dtype == sent.dtype
        assert received.tobytes() == sent.tobytes()
        assert not received.flags.writeable
        assert received.flags.aligned
    elif isinstance(sent, msgspec.Struct) and isinstance(received, msgspec.Struct):
        assert_equal_fields(sent, received)
    elif isinstance(sent, dict) and isinstance(received, dict):
        assert list(received) == list(sent)
        for key in sent:
            assert_equal(sent[key], received[key])
    else:
        assert received == sent


@pytest.mark.parametrize("field", range(5))
@pytest.mark.parametrize("value", [-1, 2**63, 2**64 - 1, 1.5, float("nan"), "many", None])
def test_credit_that_can_not_be_is_refused(field: int, value: object) -> None:
    fields: list[object] = [24, 1, 2, 3, 4, 5]
    fields[1 + field] = value
    with pytest.raises(RemoteProtocolError, match=r"Credit: .*Expected `int`"):
        decode(msgspec.msgpack.encode(fields), Credit)


@given(st.lists(st.floats(width=32)))
def test_any_losses_keep_their_bits(losses: list[float]) -> None:
    sent = Result(0, 0, np.array(losses, dtype=np.float32), DIGEST)
    assert decode(encode(sent), Result).losses.tobytes() == sent.losses.tobytes()


def test_strided_array_travels_as_its_values() -> None:
    sent = Result(0, 0, np.arange(10, dtype=np.float32)[::-3], DIGEST)
    assert decode(encode(sent), Result).losses.tolist() == [9, 6, 3, 0]


def test_bytes_are_those_of_the_documentation() -> None:
    losses = np.array([1.5, -2.0], dtype=np.float32)
    assert encode(Result(300, 64, losses, bytes(range(8)), busy_s=0.5)).hex(" ") == (
        "9a 03 cd 01 2c 40 93 a3 3c 66 34 91 02 c4 08 00 00 c0 3f 00 00 00 c0 c4 08 00 01 02 03 04 05 06 07 "
        "92 93 a3 7c 69 31 91 00 c4 00 93 a3 7c 75 31 91 00 c4 00 cb 3f e0 00 00 00 00 00 00 c0 01 "
        "93 a3 3c 69 38 91 00 c4 00"
    )


def test_result_without_the_last_fields_is_one_machines_and_says_nothing_of_the_variance() -> None:
    fields = msgspec.msgpack.decode(encode(SMALL_RESULT))
    assert decode(msgspec.msgpack.encode(fields[:-1]), Result).moments.size == 0
    assert decode(msgspec.msgpack.encode(fields[:-2]), Result).n_machines == 1
    assert decode(msgspec.msgpack.encode(fields[:-3]), Result).variance_left is None
    fields[-3] = "half"
    with pytest.raises(RemoteProtocolError, match="variance_left: "):
        decode(msgspec.msgpack.encode(fields), Result)


def test_every_truncation_is_refused(message: Message) -> None:
    payload = encode(message)
    for length in range(min(len(payload), 300)):
        with pytest.raises(RemoteProtocolError):
            decode(payload[:length], type(message))


def test_a_snapshots_bytes_are_those_of_the_documentation() -> None:
    weights, buffer = np.array([1.5], np.float32), np.array([-2.0], np.float32)
    assert encode(Snapshot(300, bytes(range(8)), weights, {"momentum_buffer": buffer}, {})).hex(" ") == (
        "98 11 cd 01 2c c4 08 00 01 02 03 04 05 06 07 93 a3 3c 66 34 91 01 c4 04 00 00 c0 3f "
        "81 af 6d 6f 6d 65 6e 74 75 6d 5f 62 75 66 66 65 72 93 a3 3c 66 34 91 01 c4 04 00 00 00 c0 80 80 c2"
    )


def test_an_updates_bytes_are_those_of_the_documentation() -> None:
    assert encode(SMALL_UPDATE).hex(" ") == (
        "dc 00 11 20 cd 01 2c c4 00 91 92 00 02 93 a3 7c 69 31 91 02 c4 02 05 fb 01 02 cb bf e0 00 00 00 00 00 00 "
        "93 a3 73 67 64 cb 3f d0 00 00 00 00 00 00 cb 3f e0 00 00 00 00 00 00 c2 cb 00 00 00 00 00 00 00 00 "
        "a4 7a 65 72 6f cb 3f f8 00 00 00 00 00 00 cb 40 00 00 00 00 00 00 00 "
        "92 93 a3 7c 69 31 91 00 c4 00 93 a3 7c 75 31 91 00 c4 00 "
        "c0 c0"
    )


def test_a_hellos_bytes_are_those_of_the_documentation() -> None:
    hello = Hello(4, "Ada", 2, bytes(range(32)), bytes(range(32, 64)))
    key, nonce = bytes(range(32)).hex(" "), bytes(range(32, 64)).hex(" ")
    assert encode(hello).hex(" ") == f"96 01 04 a3 41 64 61 02 c4 20 {key} c4 20 {nonce}"


def test_hello_of_a_version_without_keys_can_be_read() -> None:
    assert decode(bytes.fromhex("94 01 03 a3 41 64 61 02"), Hello) == Hello(3, "Ada", 2)


def test_a_welcomes_and_a_starts_bytes_are_those_of_the_documentation() -> None:
    assert encode(Welcome("7", Invitation("rnn", 300, {"hidden_size": 64}, {}))).hex(" ") == (
        "93 10 a1 37 95 a3 72 6e 6e cd 01 2c 81 ab 68 69 64 64 65 6e 5f 73 69 7a 65 40 80 c4 00"
    )
    assert encode(Start(bytes(range(8)), 0, 300, False)).hex(" ") == (
        "95 16 c4 08 00 01 02 03 04 05 06 07 00 cd 01 2c c2"
    )


@pytest.mark.parametrize(
    "optimizer", [Adam(0.25, 0.5, 0.75, 1e-6), Sgd(0.25, 0.0), Sgd(0.25, 0.5), Lion(0.25, 0.5, 0.75), ClipUp(0.25, 0.5)]
)
def test_an_optimizer_is_told_by_its_name(optimizer: AnyOptimizer) -> None:
    sent = msgspec.structs.replace(SMALL_UPDATE, optimizer=optimizer)
    assert decode(encode(sent), Update).optimizer == optimizer


@pytest.mark.parametrize(
    "optimizer", [["adagrad", 0.1], ["sgd"], [0.25, 0.5], "sgd", ["adam", "fast"], ["sgd", 0.1, 1.0], None]
)
def test_an_optimizer_that_is_not_known_is_refused(optimizer: object) -> None:
    fields = msgspec.msgpack.decode(encode(SMALL_UPDATE))
    fields[8] = optimizer
    with pytest.raises(RemoteProtocolError, match="Update: "):
        decode(msgspec.msgpack.encode(fields), Update)


def test_options_of_an_invitation_keep_their_types() -> None:
    options: dict[str, str | int | float | bool] = {"a": 1, "b": 1.0, "c": True, "d": "1"}
    came = decode(encode(Welcome("7", Invitation("rnn", 0, options, {}))), Welcome).invitation.options
    assert [type(value) for value in came.values()] == [int, float, bool, str]


@pytest.mark.parametrize(
    "invitation",
    [
        ["k" * 65, 1, {}, {}, b""],
        ["rnn", -1, {}, {}, b""],
        ["rnn", 2**63, {}, {}, b""],
        ["rnn", 1, {"nested": {"a": 1}}, {}, b""],
        ["rnn", 1, {"listed": [1]}, {}, b""],
        ["rnn", 1, {"none": None}, {}, b""],
        ["rnn", 1, {"k" * 4097: 1}, {}, b""],
        ["rnn", 1, {str(number): 1 for number in range(65)}, {}, b""],
        ["rnn", 1, {}, {"source": "h" * 4097}, b""],
        ["rnn", 1, {}, {str(number): "00" for number in range(17)}, b""],
        ["rnn", 1, {}, {}, "text"],
        ["rnn", 1, {}],
    ],
)
def test_an_invitation_outside_its_limits_is_refused(invitation: list[object]) -> None:
    with pytest.raises(RemoteProtocolError, match="Welcome: "):
        decode(msgspec.msgpack.encode([16, "7", invitation]), Welcome)


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
        (["<f4", [1, 2], bytes(8)], "of length 1"),
        (["<f4", [], bytes(4)], "of length 1"),
        (["<f4", [1], bytes(4), 0], "at most length 3|of length 3"),
        (["<f4", [1.0], bytes(4)], "Expected `int`"),
        (["<f4", [1], "text"], "invalid base64|Expected `bytes`"),
        ([1.5, 2.5], "Expected `array` of length 3|at least length 3"),
        (None, "Expected `array`"),
    ],
)
def test_malformed_array_is_refused_with_the_reason(losses: object, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode(result_bytes(losses), Result)


@pytest.mark.parametrize("begins", [bytes([0x95, 3, 1, 0]), b"\x9b" + encode(SMALL_RESULT)[1:]])
def test_deep_nesting_is_refused(begins: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"at least length 3|recursion"):
        decode(begins + b"\x91" * 100_000, Result)


@pytest.mark.parametrize("nested", [b"\x90", b"\x80", b"\x91\x90", b"\xc0", b"\x01"])
def test_what_is_no_array_is_refused_before_it_is_built(nested: bytes) -> None:
    count = 2**20
    listed = b"\xdd" + count.to_bytes(4, "big") + nested * count
    payload = bytes([0x95, 3, 1, 0]) + listed
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="Expected `str`"):
        decode(payload, Result)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


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
        ([18, bytes(17), b""], DataBlock),
        ([18, "sixteen letters.", b""], DataBlock),
        ([18, bytes(16), ["<u2", [0], b""]], DataBlock),
        ([22, bytes(7), 0, 0, False], Start),
        ([22, DIGEST, -1, 0, False], Start),
        ([22, DIGEST, 0, -1, False], Start),
        ([22, DIGEST, 0, 0, 1], Start),
        ([19, 1, b"", [0.02, 1], 0, 0, 0, 1.0], Assignment),
        ([21, "whatever", "reason"], Farewell),
        ([21, "refused", "r" * 1001], Farewell),
    ],
)
def test_value_outside_its_limits_is_refused(fields: list[object], message_type: type[msgspec.Struct]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(msgspec.msgpack.encode(fields), message_type)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="text in UTF-8"):
        decode(b"\x94\x01\x01\xa1\xff\x01", Hello)


def test_elements_of_a_later_version_are_ignored() -> None:
    assert decode(msgspec.msgpack.encode([5, "new"]), Ping) == Ping()


def test_reason_quotes_only_the_beginning_of_what_came() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(msgspec.msgpack.encode([21, "k" * 4000, "reason"]), Farewell)
    assert len(str(caught.value)) < 500


@given(st.binary(max_size=200), st.sampled_from([Hello, Result, Welcome, Snapshot, Farewell, Update, DataBlock, Start]))
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


def test_a_shaping_travels_with_an_assignment_and_may_be_absent() -> None:
    asked = Assignment(12, bytes(16), Perturbation(0.02, 1), 64, 640, 1280, 0.25, Shaping("sign", 0.5))
    assert decode(encode(asked), Assignment) == asked
    assert encode(asked).hex().endswith("92a47369676ecb3fe0000000000000")
    without = msgspec.structs.replace(asked, shaping=None)
    assert encode(without)[-1] == 0xC0
    assert decode(encode(without), Assignment) == without


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (
            encode(Hello(4, "x" * 65, 1)),
            "Hello: name: expected text of at most 64 characters; choose another with --name",
        ),
        (encode(Hello(4, "a\x1bb", 1)), "Hello: name: expected text without control characters; choose another with"),
        (b"\x94\x01\x04\xa1\xff\x01", "Hello: name: expected text in UTF-8; choose another with --name"),
        (b"\x94\x01\x04\x05\x01", "Hello: name: expected text, got `int`; choose another with --name"),
        (b"\x94\x01\x04\xa1a\x00", "Hello: threads: Expected `int` >= 1; the sender must follow docs/protocol.md"),
        (b"\x94\x02\x04\xa1a\x00", "Hello: Invalid value 2 - at `$[0]`; the sender must follow docs/protocol.md"),
    ],
    ids=["long", "control characters", "no text", "another type", "another field", "another tag"],
)
def test_what_is_wrong_is_said_by_the_fields_name(payload: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match="^" + re.escape(words)):
        decode(payload, Hello)


def test_decoders_are_built_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    build, seen = msgspec.msgpack.Decoder, list[bool]()

    def built(expected: type[Ping]) -> msgspec.msgpack.Decoder[Ping]:
        seen.append(codec._building.locked())
        return build(expected)

    monkeypatch.setattr(msgspec.msgpack, "Decoder", built)
    codec._decoder.__wrapped__(Ping)
    assert seen == [True]
    assert not codec._building.locked()


def test_the_examples_of_a_seat_are_those_of_the_protocol() -> None:
    seat = Seat(1, (3, 7), 2, 1, "int8-delta", batch=64, window=4, member_bytes=136, group_bytes=512)
    assert encode(seat).hex(" ") == ("9b 19 01 92 03 07 02 01 aa 69 6e 74 38 2d 64 65 6c 74 61 40 04 cc 88 cd 02 00 00")
    payload = np.array([1.5, -2.0], "<f4").tobytes()
    head = "97 21 cd 01 2c 40 02 c4 08 00 01 02 03 04 05 06 07"
    assert (
        encode(Activations(300, 64, 2, bytes(range(8)), payload)).hex(" ") == f"{head} c4 08 00 00 c0 3f 00 00 00 c0 c2"
    )

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError

WEIGHTS = np.linspace(-1, 1, 7, dtype=np.float32)
SNAPSHOT = Snapshot(12, bytes(8), WEIGHTS, {"start": WEIGHTS, "momentum_buffer": -WEIGHTS}, {"beta1_power": 2.0**-1000})


def test_slots_and_numbers_come_back_by_name_to_the_bit() -> None:
    came = decode(encode(SNAPSHOT), Snapshot)
    assert (came.step, came.digest, came.numbers) == (12, bytes(8), {"beta1_power": 2.0**-1000})
    assert {name: slot.tobytes() for name, slot in came.slots.items()} == {
        name: slot.tobytes() for name, slot in SNAPSHOT.slots.items()
    }
    assert came.weights.tobytes() == WEIGHTS.tobytes()


def test_a_replica_before_its_first_step_has_neither() -> None:
    came = decode(encode(Snapshot(0, bytes(8), WEIGHTS, {}, {})), Snapshot)
    assert (came.slots, came.numbers) == ({}, {})


LAYOUT = ParameterLayout((TensorSpec("a", (2, 2)), TensorSpec("b", (3,)), TensorSpec("c", (1, 2))))
HELD = np.arange(1, 10, dtype=np.float32)


@pytest.mark.parametrize(
    ("zeros", "left_out", "rest"),
    [
        ([], [], [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ([0, 1, 2, 3], [0], [5, 6, 7, 8, 9]),
        ([0, 1, 2], [], [0, 0, 0, 4, 5, 6, 7, 8, 9]),
        ([4, 5, 6], [1], [1, 2, 3, 4, 8, 9]),
        ([0, 1, 2, 3, 7, 8], [0, 2], [5, 6, 7]),
        (list(range(9)), [0, 1, 2], []),
    ],
)
def test_tensors_of_which_a_slot_says_nothing_are_left_out(
    zeros: list[int], left_out: list[int], rest: list[int]
) -> None:
    slot = HELD.copy()
    slot[zeros] = 0.0
    whole = Snapshot(3, bytes(8), HELD, {"full": HELD, "some": slot}, {})
    sent = decode(encode(whole.condensed(LAYOUT)), Snapshot)
    assert sent.zeros == ({"some": left_out} if left_out else {})
    assert sent.slots["some"].tolist() == rest
    came = sent.whole_slots(LAYOUT)
    assert {name: array.tobytes() for name, array in came.items()} == {
        name: array.tobytes() for name, array in whole.slots.items()
    }


def test_first_weights_that_are_the_present_ones_travel_once() -> None:
    whole = Snapshot(3, bytes(8), HELD, {START: HELD.copy(), "some": np.zeros(9, dtype=np.float32)}, {})
    sent = decode(encode(whole.condensed(LAYOUT)), Snapshot)
    assert (sent.is_start, list(sent.slots)) == (True, ["some"])
    came = sent.whole_slots(LAYOUT)
    assert {name: array.tolist() for name, array in came.items()} == {START: HELD.tolist(), "some": [0.0] * 9}
    came[START][0] = 7.0
    assert sent.weights[0] == 1.0
    others = HELD.copy()
    others[0] = 0.0
    sent = Snapshot(3, bytes(8), HELD, {START: others}, {}).condensed(LAYOUT)
    assert not sent.is_start
    assert sent.whole_slots(LAYOUT)[START].tolist() == others.tolist()


def test_minus_zero_is_no_zero() -> None:
    slot = np.zeros(9, dtype=np.float32)
    slot[5] = -0.0
    sent = Snapshot(3, bytes(8), HELD, {"some": slot}, {}).condensed(LAYOUT)
    assert sent.zeros == {"some": [0, 2]}
    assert sent.whole_slots(LAYOUT)["some"].tobytes() == slot.tobytes()


@pytest.mark.parametrize(
    ("slot", "zeros", "message"),
    [
        (HELD[:5], {"some": [0]}, ""),
        (HELD[:5], {"some": [1]}, r"some: expected float32 \[6\] and 1 tensors of zeros, got float32 \[5\]"),
        (HELD[:4], {"some": [0]}, r"some: expected float32 \[5\] and 1 tensors of zeros, got float32 \[4\]"),
        (HELD[:5], {"some": [0, 3]}, r"zeros: expected numbers of tensors by a slot's name, got \[0, 3\] of 'some'"),
        (HELD[:5], {"other": [0]}, r"zeros: expected numbers of tensors by a slot's name, got \[0\] of 'other'"),
        (
            HELD[:5].reshape(5, 1),
            {"some": [0]},
            r"some: expected float32 \[5\] and 1 tensors of zeros, got float32 \[5, 1\]",
        ),
    ],
)
def test_what_is_left_out_must_be_of_the_layout(
    slot: NDArray[np.float32], zeros: dict[str, list[int]], message: str
) -> None:
    snapshot = Snapshot(3, bytes(8), HELD, {"some": slot}, {}, zeros)
    if not message:
        assert snapshot.whole_slots(LAYOUT)["some"].tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 5]
        return
    with pytest.raises(ValueError, match=message):
        snapshot.whole_slots(LAYOUT)


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 2**63},
        {"digest": bytes(7)},
        {"digest": bytes(9)},
        {"slots": {str(number): WEIGHTS for number in range(5)}},
        {"numbers": {str(number): 0.5 for number in range(5)}},
        {"slots": {"start": WEIGHTS.astype(np.float64)}},
        {"weights": WEIGHTS.astype(np.float64)},
        {"zeros": {"start": [-1]}},
        {"zeros": {str(number): [0] for number in range(5)}},
    ],
)
def test_a_snapshot_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    assert decode(encode(SNAPSHOT), Snapshot).step == 12
    with pytest.raises(RemoteProtocolError, match="Snapshot: "):
        decode(encode(msgspec.structs.replace(SNAPSHOT, **change)), Snapshot)


def test_as_many_slots_and_numbers_as_may_be_are_taken() -> None:
    full = msgspec.structs.replace(
        SNAPSHOT,
        slots={str(number): WEIGHTS for number in range(4)},
        numbers={str(number): 0.5 for number in range(4)},
    )
    came = decode(encode(full), Snapshot)
    assert (len(came.slots), len(came.numbers)) == (4, 4)

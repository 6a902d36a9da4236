import msgspec
import numpy as np
import pytest

from fedlearn.es.snapshot import Snapshot
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


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 2**63},
        {"digest": bytes(7)},
        {"digest": bytes(9)},
        {"slots": {str(number): WEIGHTS for number in range(9)}},
        {"numbers": {str(number): 0.5 for number in range(9)}},
        {"slots": {"start": WEIGHTS.astype(np.float64)}},
        {"weights": WEIGHTS.astype(np.float64)},
    ],
)
def test_a_snapshot_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    assert decode(encode(SNAPSHOT), Snapshot).step == 12
    with pytest.raises(RemoteProtocolError, match="Snapshot: "):
        decode(encode(msgspec.structs.replace(SNAPSHOT, **change)), Snapshot)


def test_as_many_slots_and_numbers_as_may_be_are_taken() -> None:
    full = msgspec.structs.replace(
        SNAPSHOT,
        slots={str(number): WEIGHTS for number in range(8)},
        numbers={str(number): 0.5 for number in range(8)},
    )
    came = decode(encode(full), Snapshot)
    assert (len(came.slots), len(came.numbers)) == (8, 8)

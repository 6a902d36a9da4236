"""What a seat says, changed in some field or byte: nothing but its own conversation ends, and its crew goes on."""

from random import Random

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.coordination.crews.crews import REPLAN_S
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.limits import LOADING_LIMIT_S
from fedlearn.wire.messages import Activations, Message, Ready, Result
from tests.coordination.crews.replica import HONEST, N_SEATS
from tests.coordination.crews.scene import Scene

VALUES = [
    None,
    -1,
    0,
    1,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    1.5,
    float("nan"),
    b"",
    bytes(8),
    bytes(7000),
    "x",
    [],
    [1],
]


def changed(choices: Random, message: Message) -> Message | None:
    """The message with another value in a field, or other bytes; None where it can't be read any more."""
    payload = bytearray(encode(message))
    if choices.random() < 0.7:
        fields = msgspec.msgpack.decode(payload)
        fields[choices.randrange(len(fields))] = choices.choice(VALUES)
        payload = bytearray(msgspec.msgpack.encode(fields))
    else:
        for _ in range(choices.randint(1, 3)):
            payload[choices.randrange(len(payload))] = choices.randrange(256)
    try:
        return decode(bytes(payload), type(message))
    except RemoteProtocolError:
        return None


def send(scene: Scene, peer: int, message: Message) -> None:
    """The connection takes it as from a socket; what breaks a rule ends this peer alone."""
    machine = scene.machines[peer]
    try:
        machine.link.client.send(message)
    except LocalProtocolError:
        return  # an honest connection does not even send it
    try:
        scene.hear(peer)
    except RemoteProtocolError:
        scene.drop(peer)


@pytest.mark.parametrize("seed", range(40))
def test_a_crew_goes_on_whatever_a_seat_says(seed: int) -> None:
    choices, scene = Random(seed), Scene(seed=seed)
    for _ in range(N_SEATS):
        scene.join()
    scene.settle(2)
    for _ in range(choices.randint(1, 12)):
        peer = choices.choice(list(scene.machines) or [0])
        if peer == 0:
            break
        machine = scene.machines[peer]
        digest = machine._digest
        honest: list[Message] = [
            Activations(machine.step, 0, 3, digest, bytes(12)),
            Result(machine.step, 0, np.full(4, HONEST, np.float32), digest),
            Ready(machine.step, digest),
        ]
        said = changed(choices, choices.choice(honest))
        if said is not None:
            send(scene, peer, said)
        scene.do_work()
    while len(scene.machines) < 2 * N_SEATS:
        scene.join()
    n_steps = len(scene.trainer.journal)
    scene.settle_for(REPLAN_S, STALL_S, LOADING_LIMIT_S)
    assert len(scene.trainer.journal) >= n_steps + 3
    assert scene.trainer.losses[-1] == HONEST

"""A server that gives seats which no model has, and activations that nobody made, harms no volunteer."""

import tracemalloc
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.tasks.blocks import block_name, encode_block
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import Activations, Assignment, DataBlock, Goodbye, Message, Seat, Taken, Welcome
from tests.client.hostile import FAR, Attack
from tests.client.test_hostile_orders import Client

pytest.importorskip("torch")

from fedlearn.tasks.torch_graph.part import GraphPart
from tests.tasks.parts.test_computation import snapshot
from tests.tasks.torch_graph.shared import CUTS, attachment, task

SEAT = Seat(1, CUTS, 1, 1, "float32", 8, 4, 1024, 0)
COLUMNS = dict(task().data)
BLOCK = DataBlock(block_name(COLUMNS), encode_block(COLUMNS))
LEASE = Assignment(0, BLOCK.block, Perturbation(0.05, 1), 8, 0, 64, 60.0)
MEMBER_BYTES = 2 * 8 * 16 * 4


def opening(**changes: object) -> list[Message]:
    """What leads to Ready at step 0, in a seat that is changed, of a model that is not."""
    seat = msgspec.structs.replace(SEAT, **changes)
    weights = snapshot(GraphPart(attachment(), CUTS, 1, seed=3, device="cpu", max_bytes=2**40))
    return [Welcome("1", Invitation("graph", 3, {}, {}, attachment())), seat, BLOCK, weights]


def given(*, first: int = 0, count: int = 8, payload: bytes | None = None, **changes: object) -> list[Message]:
    """Of a lease, and activations for it."""
    lease = msgspec.structs.replace(LEASE, **changes)
    data = bytes(count * MEMBER_BYTES) if payload is None else payload
    return [lease, Activations(lease.step, first, count, bytes(8), data)]


def other_weights(n_parameters: int, *, slots: int = 0) -> list[Message]:
    weights = np.zeros(n_parameters, np.float32)
    return [*opening()[:3], Snapshot(0, bytes(8), weights, {str(n): weights for n in range(slots)}, {})]


ATTACKS: Mapping[str, Callable[[], Attack]] = {
    "place that is not there": lambda: Attack(opening(place=3), [], "seat: expected a place from 0 to 2, got 3"),
    "place beyond every list": lambda: Attack(opening(place=2**63 - 1), [], "seat: expected a place"),
    "cut behind the end": lambda: Attack(opening(cuts=(2, 5)), [], "cuts: "),
    "cut at the beginning": lambda: Attack(opening(cuts=(0, 2)), [], "cuts: "),
    "cut beyond every list": lambda: Attack(opening(cuts=(2, 2**63 - 1)), [], "cuts: "),
    "cuts that go back": lambda: Attack(opening(cuts=(3, 2)), [], "cuts: "),
    "cuts without end": lambda: Attack(opening(cuts=tuple(range(255))), [], "cuts: "),
    "shards of no vocabulary": lambda: Attack(opening(shards=2), [], "shards: "),
    "shards without end": lambda: Attack(opening(shards=2**62), [], "shards: "),
    "weights of another part": lambda: Attack(other_weights(3), [], "weights: "),
    "slots without end": lambda: Attack(other_weights(272, slots=4), [], ""),
    "zeros of no slot": lambda: Attack(
        [*opening()[:3], Snapshot(0, bytes(8), np.zeros(272, np.float32), {}, {}, {"a": [FAR]})], [], "zeros: "
    ),
    "no Welcome of a graph": lambda: Attack([Welcome("1", Invitation("rnn", 1, {}, {})), SEAT], [], ""),
    "payload that is short": lambda: Attack(opening(), given(payload=b"x"), "activations: expected 8192 bytes"),
    "payload that is long": lambda: Attack(opening(), given(payload=bytes(2**20)), "activations: expected 8192 bytes"),
    "members without end": lambda: Attack(opening(), given(first=2**63 - 8), "trials: "),
    "members of two groups": lambda: Attack(opening(), given(first=4), "members: expected some of one group"),
    "more members than bytes": lambda: Attack(opening(), given(count=FAR, payload=b""), "members: "),
    "group without end": lambda: Attack(
        opening(), given(count=2**20, payload=b"", group_size=2**20, quota=2**20), "memory: "
    ),
    "rank": lambda: Attack(opening(), given(perturbation=Perturbation(0.1, 2**50)), "work: "),
    "rank below zero": lambda: Attack(opening(), given(perturbation=Perturbation(0.1, -1)), "trials: "),
    "block that is not there": lambda: Attack(opening(), given(block=bytes(16)), "block "),
    "step that is far": lambda: Attack(opening(), given(step=FAR), ""),
    "window without end": lambda: Attack(
        opening(window=2**62, batch=2**62, member_bytes=2**62, group_bytes=2**62), [*given(), Taken(0, 2**63 - 1)], ""
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_absurd_seat_is_refused_in_words_before_it_is_allocated(name: str) -> None:
    attack = ATTACKS[name]()
    client = Client(attack)
    tracemalloc.start()
    try:
        client.converse()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{name}: {client.left_by.reason if client.left_by else 'it stays'}, {peak / 2**20:.1f} MiB")
    if attack.answer:
        assert client.left_by is not None
        assert client.left_by.is_refusal
        assert client.left_by.reason.startswith(attack.answer)
        assert isinstance(client.heard[-1], Goodbye)
    assert peak < 40 * 2**20

"""A seat's part of a replica on this machine: members of its crew go through it."""

from math import prod
from typing import final

import numpy as np

from fedlearn.coordination.effects import Pass
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import PartHolding
from fedlearn.tasks.objective import PartObjective, Values
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Seat


@final
class Place:
    """What is held while this machine has the seat."""

    def __init__(self, part: PartObjective, seat: Seat, *, seed: int, threads: int, kept: int) -> None:
        self.holding = PartHolding(part, seed=seed, threads=threads, kept=kept)
        self._seat = seat
        self._part = part

    def passed(self, order: Pass) -> bytes | TrialResults:
        """What the next seat is sent of these members; of the last seat, their losses."""
        received = self._decoded(order.payload, order.trials.n_members)
        given = self.holding.members(order.trials, order.block, received)
        if self._seat.place == len(self._seat.cuts):
            (losses,) = given.values()
            return TrialResults(np.asarray(losses, dtype=np.float32).reshape(-1))
        return b"".join(np.asarray(given[name], dtype="<f4").tobytes() for name in self._part.gives)

    def _decoded(self, payload: bytes, n_members: int) -> Values:
        shapes = {name: (n_members, *shape) for name, shape in self._part.receives.items()}
        expected = 4 * sum(map(prod, shapes.values()))
        if len(payload) != expected:
            raise RemoteProtocolError(f"activations: expected {expected} bytes of the seat before, got {len(payload)}")
        values, offset = {}, 0
        for name, shape in shapes.items():
            values[name] = np.frombuffer(payload, "<f4", prod(shape), offset).reshape(shape)
            offset += 4 * prod(shape)
        return values

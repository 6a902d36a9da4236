"""A seat's part of a replica on this machine: members of its crew go through it."""

from math import prod
from typing import final

import numpy as np

from fedlearn.coordination.effects import Pass
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import PartHolding
from fedlearn.tasks.objective import PartObjective, Values
from fedlearn.wire.activations import decode, encode, member_bytes, needs_base
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Seat


@final
class Place:
    """What is held while this machine has the seat."""

    def __init__(self, part: PartObjective, seat: Seat, *, seed: int, threads: int, kept: int) -> None:
        self.holding = PartHolding(part, seed=seed, threads=threads, kept=kept)
        self._seat = seat
        self._part = part
        self._has_base = needs_base(seat.wire)
        self._base: Values = {}
        """What the seat before makes of the group without noise, and what this one does."""
        self._own_base: Values = {}

    def passed(self, order: Pass) -> bytes | TrialResults:
        """What the next seat is sent of these members; of the last seat, their losses.

        Raises:
            RemoteProtocolError: what the seat before sent is something else than the plan says.
        """
        trials = order.trials
        begins = trials.first_member % trials.group_size == 0
        received = self._decoded(order.payload, trials.n_members, begins=begins)
        given = self.holding.members(trials, order.block, received)
        if self._seat.place == len(self._seat.cuts):
            (losses,) = given.values()
            return TrialResults(np.asarray(losses, dtype=np.float32).reshape(-1))
        if self._has_base and begins:
            self._own_base = self.holding.unperturbed(trials, order.block, self._base)
        return self._encoded(given, begins=begins)

    def _encoded(self, given: Values, *, begins: bool) -> bytes:
        """Value by value: without noise where a group begins and that is sent, then of each member."""
        parts: list[bytes] = []
        for name in self._part.gives:
            base = self._own_base.get(name)
            if base is not None and begins:
                parts.append(encode("float32", base))
            parts.append(encode(self._seat.wire, given[name], base))
        return b"".join(parts)

    def _decoded(self, payload: bytes, n_members: int, *, begins: bool) -> Values:
        wire, shapes = self._seat.wire, self._part.receives
        group_bytes = sum(4 * prod(shape) for shape in shapes.values()) if self._has_base and begins else 0
        expected = group_bytes + n_members * sum(member_bytes(wire, shape) for shape in shapes.values())
        if len(payload) != expected:
            raise RemoteProtocolError(
                f"activations: expected {expected} bytes of {n_members} members as {wire}, got {len(payload)}; "
                "all seats must have one plan"
            )
        values, base, offset = {}, dict(self._base), 0
        for name, shape in shapes.items():
            if group_bytes:
                end = offset + 4 * prod(shape)
                base[name] = np.asarray(decode("float32", payload[offset:end], 1, shape)[0])
                offset = end
            end = offset + n_members * member_bytes(wire, shape)
            try:
                values[name] = decode(wire, payload[offset:end], n_members, shape, base.get(name))
            except RemoteProtocolError:
                # Whoever made these lies, and is found by what comes of them: this machine only hands it on.
                values[name] = np.full((n_members, *shape), np.nan, dtype=np.float32)
            offset = end
        self._base = base
        return values

"""One stage of a model: turns the activations that the previous stage sent into those for the next one.

Whoever has a seat computes so, and the server that goes over what seats did.
"""

from math import prod
from typing import final

import numpy as np

from fedlearn.es.trials import Float32Array, Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.objective import PartObjective, Values
from fedlearn.wire.encoding.activations import ActivationCodec, decode, encode, member_bytes, needs_base
from fedlearn.wire.errors import RemoteProtocolError


@final
class StageComputation:
    """Passes the members of a group in order, since what is sent once a group comes with the first ones."""

    def __init__(self, part: PartObjective, wire: ActivationCodec, *, is_last: bool, threads: int) -> None:
        self.part = part
        self._wire: ActivationCodec = wire
        self._is_last = is_last
        self._threads = threads
        self._has_base = needs_base(wire)
        self._base: Values = {}
        """Unperturbed activations of the group that this stage received."""
        self._own_base: Values = {}
        """Unperturbed activations of the group that this stage made."""

    def passed(self, trials: Trials, data: Columns, payload: bytes) -> bytes | Float32Array:
        """The activations of these members for the next stage; at the last stage, their losses.

        Raises:
            RemoteProtocolError: the activations of the previous stage contradict the plan.
        """
        begins = trials.first_member % trials.group_size == 0
        received = self._decoded(payload, trials.n_members, begins=begins)
        given = self.part.members(data, trials, received, threads=self._threads)
        if self._is_last:
            (losses,) = given.values()
            return np.asarray(losses, dtype=np.float32).reshape(-1)
        if self._has_base and begins:
            self._own_base = self.part.unperturbed(data, trials, self._base, threads=self._threads)
        return self._encoded(given, begins=begins)

    def _encoded(self, given: Values, *, begins: bool) -> bytes:
        """Encodes value by value: the unperturbed one where a group begins and the codec needs it, then each
        member's."""
        parts: list[bytes] = []
        for name in self.part.gives:
            base = self._own_base.get(name)
            if base is not None and begins:
                parts.append(encode("float32", base))
            parts.append(encode(self._wire, given[name], base))
        return b"".join(parts)

    def _decoded(self, payload: bytes, n_members: int, *, begins: bool) -> Values:
        wire, shapes = self._wire, self.part.receives
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

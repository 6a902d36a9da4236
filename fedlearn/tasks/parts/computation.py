"""One stage of a model: turns what the neighbouring stages sent into what they are to be sent.

Whoever has a seat computes so, and the server that goes over what seats did.
"""

from collections.abc import Mapping
from math import prod
from typing import final

import msgspec
import numpy as np

from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.trials import Float32Array, TrialResults, Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.parts.activations import ActivationCodec, decode, encode, member_bytes, needs_base
from fedlearn.tasks.parts.objective import PartObjective, Values

COTANGENT_SCALE = 2.0**10
"""The factor by which cotangents travel, since float16 has few digits below 6e-5, where those of a mean lie."""

Shapes = Mapping[str, tuple[int, ...]]


class Pass(msgspec.Struct, frozen=True):
    """An order to take some members through the part of a model that is held here, or back; the result is `Passed`."""

    trials: Trials
    block: bytes
    payload: bytes
    """Activations from the seat before; empty at the first seat."""
    cotangents: bytes | None = None
    """Cotangents from the next seat, where members come back; the last seat turns by itself."""
    lease: Trials | None = None
    """The whole lease, whose gradients are summed; None where members have noise."""


class Passed(msgspec.Struct, frozen=True, eq=False):
    """The result of a `Pass`."""

    payload: bytes = b""
    """Activations for the next seat, or cotangents for the one before; empty where there is nobody to send them to."""
    results: TrialResults | None = None
    """Losses, which only the last seat has, and at the end of a lease the sum of this part's gradients."""


@final
class StageComputation:
    """Passes members in order: what is sent once a group comes with its first ones, and a lease has one sum."""

    def __init__(self, part: PartObjective, wire: ActivationCodec, *, is_last: bool, threads: int) -> None:
        self.part = part
        self._wire: ActivationCodec = wire
        self._is_last = is_last
        self._threads = threads
        self._has_base = needs_base(wire)
        self._base: dict[str, Float32Array] = {}
        """Unperturbed activations of the group that this stage received."""
        self._own_base: Values = {}
        """Unperturbed activations of the group that this stage made."""
        self._total = np.zeros(0, dtype=np.int64)
        """The sum of the gradients of the lease's members so far."""
        self._is_finite = True

    def passed(self, order: Pass, data: Columns) -> Passed:
        """What the neighbouring stages are sent of these members, and what this stage reports.

        Raises:
            ValueError: what a neighbouring stage sent contradicts the plan.
        """
        if order.lease is None:
            return self._with_noise(order, data)
        receives = self.part.receives
        received = self._decoded(order.payload, receives, order.trials.n_members, self._zeros(receives))
        if order.cotangents is not None or self._is_last:
            return self._backward(order, order.lease, received, data)
        given = self.part.forward(data, order.trials, received, threads=self._threads)
        return Passed(self._encoded(given, self._zeros(self.part.gives)))

    # ---- members without noise, whose gradients are summed

    def _backward(self, order: Pass, lease: Trials, received: Values, data: Columns) -> Passed:
        trials, cotangents = order.trials, dict[str, Float32Array]()
        if not self._is_last:
            gives = self.part.gives
            scaled = self._decoded(order.cotangents or b"", gives, trials.n_members, self._zeros(gives))
            cotangents = {name: value / np.float32(COTANGENT_SCALE) for name, value in scaled.items()}
        found = self.part.backward(data, trials, received, cotangents, threads=self._threads)
        if trials.first_member == lease.first_member:
            self._total, self._is_finite = np.zeros(self.part.layout.size, dtype=np.int64), True
        self._total += found.total
        self._is_finite &= found.is_finite
        losses, estimate = np.zeros(0, dtype=np.float32), NO_ESTIMATE
        if self._is_last:
            (lost,) = found.given.values()
            losses = np.asarray(lost, dtype=np.float32).reshape(-1)
        if trials.first_member + trials.n_members == lease.first_member + lease.n_members and self._is_finite:
            estimate = self.part.encoded(self._total, lease)
        with np.errstate(over="ignore"):
            back = {name: value * np.float32(COTANGENT_SCALE) for name, value in found.cotangents.items()}
        return Passed(self._encoded(back, self._zeros(self.part.receives)), TrialResults(losses, estimate))

    # ---- members with noise, whose losses are measured

    def _with_noise(self, order: Pass, data: Columns) -> Passed:
        trials = order.trials
        begins = trials.first_member % trials.group_size == 0
        received = self._decoded(order.payload, self.part.receives, trials.n_members, self._base, begins=begins)
        given = self.part.members(data, trials, received, threads=self._threads)
        if self._is_last:
            (losses,) = given.values()
            return Passed(results=TrialResults(np.asarray(losses, dtype=np.float32).reshape(-1)))
        if self._has_base and begins:
            self._own_base = self.part.unperturbed(data, trials, self._base, threads=self._threads)
        return Passed(self._encoded(given, self._own_base, begins=begins))

    # ---- what travels, value by value

    def _encoded(self, values: Values, base: Values, *, begins: bool = False) -> bytes:
        """Encodes values of members; `base` are the unperturbed ones, which are sent, too, where a group `begins`."""
        parts: list[bytes] = []
        for name, value in values.items():
            if begins and name in base:
                parts.append(encode("float32", base[name]))
            parts.append(encode(self._wire, value, base.get(name)))
        return b"".join(parts)

    def _decoded(
        self, payload: bytes, shapes: Shapes, n_members: int, base: dict[str, Float32Array], *, begins: bool = False
    ) -> Values:
        """The values of members; the unperturbed ones that come where a group `begins` are put into `base`."""
        group_bytes = sum(4 * prod(shape) for shape in shapes.values()) if self._has_base and begins else 0
        self._check_length(payload, shapes, n_members, group_bytes=group_bytes)
        values, offset = {}, 0
        for name, shape in shapes.items():
            if group_bytes:
                end = offset + 4 * prod(shape)
                base[name] = np.asarray(decode("float32", payload[offset:end], 1, shape)[0])
                offset = end
            end = offset + n_members * member_bytes(self._wire, shape)
            values[name] = self._value(payload[offset:end], n_members, shape, base.get(name))
            offset = end
        return values

    def _zeros(self, shapes: Shapes) -> dict[str, Float32Array]:
        """The unperturbed values of members without noise, as far as the codec needs any."""
        return {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()} if self._has_base else {}

    def _check_length(self, payload: bytes, shapes: Shapes, n_members: int, *, group_bytes: int) -> None:
        wire = self._wire
        expected = group_bytes + n_members * sum(member_bytes(wire, shape) for shape in shapes.values())
        if len(payload) != expected:
            raise ValueError(
                f"activations: expected {expected} bytes of {n_members} members as {wire}, got {len(payload)}; "
                "all seats must have one plan"
            )

    def _value(self, data: bytes, n_members: int, shape: tuple[int, ...], base: Float32Array | None) -> Float32Array:
        try:
            return decode(self._wire, data, n_members, shape, base)
        except ValueError:
            # Whoever made these lies, and is found by what comes of them: this machine only hands it on.
            return np.full((n_members, *shape), np.nan, dtype=np.float32)

"""What a worker does between the orders of its server, of which there are two forms.

A volunteer with a whole replica evaluates slices of its lease (`slices.py`); one with a seat is a stage of its crew
(`stage.py`).
"""

from typing import Protocol

import msgspec

from fedlearn.coordination.effects import ClientEffect, Evaluate
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Message


class Linked(msgspec.Struct, frozen=True):
    """The next seat is connected, and has proven that it is the one that the server named."""


class Unlinked(msgspec.Struct, frozen=True):
    """A connection to a neighbour can't be used, or not any more."""

    reason: str
    is_next: bool


class Heard(msgspec.Struct, frozen=True):
    """Activations came straight from the previous seat, or cotangents from the next one."""

    activations: Activations


LineEvent = Linked | Unlinked | Heard
"""Events of the connections to neighbours in a crew."""


class LeasedWork(Protocol):
    """The work of one machine, from its first lease to the last."""

    @property
    def bytes_waiting(self) -> int:
        """Bytes that neighbours sent and this machine has not computed."""

    def take(self, event: Message | LineEvent, now: float) -> list[ClientEffect]:
        """Takes a lease, or what neighbours send and the server says about it; all else is ignored."""

    def give_up(self) -> None:
        """Drops the lease, since its step is over."""

    def next(self, step: int, now: float) -> Evaluate | Pass | None:
        """The next computation with weights that stand before `step`; None: there is nothing to do."""

    def done(
        self, order: Evaluate | Pass, result: Passed | TrialResults, digest: bytes, *, started: float, now: float
    ) -> list[ClientEffect]:
        """Takes the result of a computation with weights of this digest, which took from `started` to `now`."""

"""Machines, and the crews that a plan forms of them; a crew holds one replica, from its root over stems to its leaf."""

import math
from typing import Literal

from msgspec import Struct

Role = Literal["whole", "root", "stem", "leaf"]


class Machine(Struct, frozen=True):
    """A machine as a planner knows it."""

    name: str
    memory_bytes: float
    line_bytes_per_s: float
    multiply_adds_per_s: float


class PlannedSeat(Struct, frozen=True):
    """A machine's part of a replica."""

    machine: str
    role: Role
    first: int
    """The number of its first piece."""
    end: int
    """The number of its last piece, plus 1."""
    tensors: tuple[str, ...]
    need_bytes: int
    """Memory that the seat takes, in bytes."""
    received_bytes: int
    """Bytes that the seat receives for each member, as float32."""
    sent_bytes: int
    seconds: float
    """Seconds for a member: those of the processor, or of the line that brings members if they are more."""


class PlannedCrew(Struct, frozen=True):
    """Machines that hold one replica, in the order in which a member passes through them."""

    seats: tuple[PlannedSeat, ...]
    seconds: float
    """Seconds between two members."""


class PlannedCrews(Struct, frozen=True):
    """Crews, and the machines without a seat, in the order in which machines were given."""

    crews: tuple[PlannedCrew, ...]
    idle: tuple[str, ...]

    @property
    def members_per_s(self) -> float:
        """Members per second of all crews together."""
        return math.fsum(1 / crew.seconds for crew in self.crews)


class PlanError(ValueError):
    """The error of machines for which there is no plan."""


class LacksMemory(PlanError):  # noqa: N818
    """The error of machines that lack memory; the message says how much is missing, and where."""

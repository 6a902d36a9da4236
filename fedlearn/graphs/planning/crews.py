"""Machines, and the crews that a plan makes of them; a crew holds one replica, from its root over stems to its leaf."""

import math
from typing import Literal

from msgspec import Struct

Role = Literal["whole", "root", "stem", "leaf"]


class Machine(Struct, frozen=True):
    """What a planner knows of a machine."""

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
    """The number of its last piece, plus one."""
    tensors: tuple[str, ...]
    need_bytes: int
    """Bytes of memory that it takes."""
    received_bytes: int
    """Of each member, as float32."""
    sent_bytes: int
    seconds: float
    """For a member: of its processor, or of the line that brings members to it where that takes longer."""


class PlannedCrew(Struct, frozen=True):
    """Machines that hold one replica, in the order in which a member passes them."""

    seats: tuple[PlannedSeat, ...]
    seconds: float
    """From one member to the next."""


class PlannedCrews(Struct, frozen=True):
    """Crews, and machines without a seat, in the order in which machines were given."""

    crews: tuple[PlannedCrew, ...]
    idle: tuple[str, ...]

    @property
    def members_per_s(self) -> float:
        """The rate of all crews together."""
        return math.fsum(1 / crew.seconds for crew in self.crews)


class PlanError(ValueError):
    """Says why there is no plan."""


class LacksMemory(PlanError):  # noqa: N818
    """Says how much memory is missing, and where."""

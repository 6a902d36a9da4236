"""A plan of a crew: which stages a model is cut into, and who is to hold each."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from fedlearn.tasks.parts.activations import ActivationCodec

Tensors = tuple[str, ...]
"""Names of the tensors that a seat holds."""


class StageSpec(msgspec.Struct, frozen=True):
    """What a seat of a crew holds, and what it sends to the next one."""

    tensors: Tensors
    need_bytes: int
    """Memory that the stage takes, in bytes."""
    member_bytes: int
    """Size of one member's activations as they travel, in bytes."""
    group_bytes: int
    """Size of what travels once a group with its activations, in bytes."""
    batch: int
    """The most members in one message."""
    waiting_bytes: int = 0
    """Bytes of activations and cotangents that may be on their way to the stage, or kept there."""
    received_bytes: int = 0
    """Size of one member's cotangents as they travel back from it, in bytes; 0 where nothing goes back."""


class CrewPlan(msgspec.Struct, frozen=True):
    """A possible crew."""

    cuts: tuple[int, ...]
    shards: int
    stages: tuple[StageSpec, ...]
    order: tuple[int, ...]
    """The volunteer that takes each stage, by its index in the list that was passed to the planner."""
    window: int
    """Messages that may be in flight from the first seat to the last."""
    reason: str = ""
    """Why the model is cut differently than was asked for; empty where it is not."""


class PlansCrews(Protocol):
    """A planner, which knows the model and the ways in which it can be cut."""

    wire: ActivationCodec

    def fits(self, stage: StageSpec, memory_bytes: int) -> bool:
        """Whether a volunteer that lends this memory can hold a stage."""

    def draft(self, memories: Sequence[int], *, fewer: bool = False) -> CrewPlan | None:
        """A crew of some of the volunteers that lend these memories, in bytes; None: together they can't hold a replica
        yet, or are not as many as was asked for. With `fewer`, as few will do as hold a replica."""

    def lack(self, memories: Sequence[int]) -> str:
        """Describes what volunteers that lend these memories lack for a crew."""

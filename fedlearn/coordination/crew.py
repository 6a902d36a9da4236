"""A crew: volunteers that hold one replica between them, each a part of it, and what is known of each."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, final

import msgspec

from fedlearn.coordination.effects import Peer
from fedlearn.coordination.roster import Volunteer
from fedlearn.wire.activations import ActivationCodec
from fedlearn.wire.messages import Activations, Assignment, Result, Seat

Tensors = tuple[str, ...]
"""Names of those that a seat holds."""


class Place(msgspec.Struct, frozen=True):
    """What a seat of a crew holds, and sends to the next one."""

    tensors: Tensors
    need_bytes: int
    """Memory that it takes."""
    member_bytes: int
    """Of the activations of one member, as they travel,"""
    group_bytes: int
    """and what goes with them once a group."""
    batch: int
    """Members in one message, at most."""


class Draft(msgspec.Struct, frozen=True):
    """A crew that is possible."""

    cuts: tuple[int, ...]
    places: tuple[Place, ...]
    order: tuple[int, ...]
    """Which volunteer takes each place, by its number among those that were asked about."""


class Planner(Protocol):
    """Knows the model, and how it can be cut."""

    wire: ActivationCodec

    def fits(self, place: Place, memory_bytes: int) -> bool:
        """Whether who lends so much can take a place."""

    def draft(self, memories: Sequence[int]) -> Draft | None:
        """A crew of some of those who lend so much each; None: together they can't hold a replica yet."""


class Line(Enum):
    """What may be said to a sitter."""

    OPEN = "it can be given a seat"
    SYNCING = "it was sent its part, and has not answered"
    ACTIVE = "it holds its part"


@final
class Sitter:
    """A volunteer that has a seat, or waits for one."""

    def __init__(self, volunteer: Volunteer) -> None:
        self.volunteer = volunteer
        self.line = Line.OPEN
        self.crew: Crew | None = None
        self.place = 0
        self.needs_part = False
        """Whether the weights of its place are still to be sent."""
        self.sent_at: int | None = None
        """Step of the part that it was sent last: since then every Update goes to it."""
        self.said: tuple[int, bytes] | None = None
        """Step and digest of its last word."""
        self.proven_at = -1
        """Step at which its digest was found right."""
        self.busy_since: float | None = None
        """Since when it has had work of which it has not answered anything."""
        self.stalled_at = -1.0
        """When it last did not answer; who did so gets a seat after all others."""

    @property
    def peer(self) -> Peer:
        return self.volunteer.peer

    @property
    def tensors(self) -> Tensors:
        """That it holds, or is to hold."""
        return self.crew.places[self.place].tensors if self.crew is not None else ()

    @property
    def is_spare(self) -> bool:
        """Whether it can be given a seat: whoever was sent a part must have answered first."""
        return self.crew is None and self.line is not Line.SYNCING

    def forget_part(self) -> None:
        """What it holds is not what it is to hold."""
        self.needs_part, self.said, self.proven_at, self.busy_since = True, None, -1, None


@final
class Crew:
    """Its seats, some of them empty for a while."""

    def __init__(self, number: int, draft: Draft) -> None:
        self.number = number
        self.cuts, self.places = draft.cuts, draft.places
        self.sitters: list[Sitter | None] = [None] * len(draft.places)
        self.peer: Peer | None = None
        """Under which the coordinator knows it, once all its seats are ready."""
        self.assignment: Assignment | None = None
        self.results: list[Result] = []
        """Of its last seat, until the digests of all are known."""
        self.incomplete_since = 0.0

    def seat(self, sitter: Sitter, place: int) -> None:
        """Gives a place to somebody."""
        self.sitters[place] = sitter
        sitter.crew, sitter.place = self, place
        sitter.volunteer.tensors = sitter.tensors
        sitter.forget_part()

    def free(self, sitter: Sitter, now: float) -> None:
        """Somebody has no place any more."""
        self.sitters[sitter.place] = sitter.crew = None
        sitter.volunteer.tensors = ()
        self.incomplete_since = now

    def message(self, place: int, *, wire: ActivationCodec, window: int) -> Seat:
        """What is said to who takes a place."""
        its = self.places[place]
        return Seat(
            crew=self.number,
            cuts=self.cuts,
            place=place,
            wire=wire,
            batch=its.batch,
            window=window,
            member_bytes=its.member_bytes,
            group_bytes=its.group_bytes,
        )

    @property
    def seated(self) -> list[Sitter]:
        """Who is there."""
        return [sitter for sitter in self.sitters if sitter is not None]

    @property
    def is_ready(self) -> bool:
        """Whether all places are taken by volunteers that hold their parts."""
        return all(
            sitter is not None and sitter.line is Line.ACTIVE and sitter.proven_at >= 0 for sitter in self.sitters
        )

    @property
    def name(self) -> str:
        return f"crew {self.number} ({', '.join(sitter.volunteer.name for sitter in self.seated)})"

    def complaint(self, sitter: Sitter, said: Activations | Result) -> str:
        """What is wrong with a message of the open lease; empty where nothing is."""
        assignment, last = self.assignment, len(self.places) - 1
        assert assignment is not None, "work without a lease"
        n_members = said.n_members if isinstance(said, Activations) else said.losses.size
        if isinstance(said, Result) != (sitter.place == last):
            expected = "losses" if sitter.place == last else "activations"
            return f"seat {sitter.place} of {self.name}: expected {expected}, got {type(said).__name__}"
        end = assignment.first_member + assignment.quota
        if not assignment.first_member <= said.first_member < said.first_member + n_members <= end:
            return (
                f"members of {self.name}: expected some of {assignment.first_member} to {end - 1}, "
                f"got {n_members} from {said.first_member} on"
            )
        return ""

"""A crew: volunteers that hold one replica between them, each a part of it, and what is known of each."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, final

import msgspec

from fedlearn.coordination.effects import Peer, Send
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.coordination.seats.activation_log import ActivationLog
from fedlearn.coordination.seats.flow import reach
from fedlearn.wire.encoding.activations import ActivationCodec
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, SeatBefore, Taken

STALL_S = 30.0
"""Who has had work for so long without an answer loses its seat, where others can do without it."""

Work = Activations | Result | Taken
"""What a seat says of members that went through it."""

Tensors = tuple[str, ...]
"""Names of those that a seat holds."""


class StageSpec(msgspec.Struct, frozen=True):
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
    waiting_bytes: int = 0
    """Of activations that may be on their way to it."""


class CrewPlan(msgspec.Struct, frozen=True):
    """A crew that is possible."""

    cuts: tuple[int, ...]
    shards: int
    places: tuple[StageSpec, ...]
    order: tuple[int, ...]
    """Which volunteer takes each place, by its number among those that were asked about."""
    window: int
    """Messages that may be on their way from the first seat to the last."""
    reason: str = ""
    """Why it is cut in another way than it was asked to be, in words."""


class PlansCrews(Protocol):
    """Knows the model, and how it can be cut."""

    wire: ActivationCodec

    def fits(self, place: StageSpec, memory_bytes: int) -> bool:
        """Whether who lends so much can take a place."""

    def draft(self, memories: Sequence[int]) -> CrewPlan | None:
        """A crew of some of those who lend so much each; None: together they can't hold a replica yet."""

    def lack(self, memories: Sequence[int]) -> str:
        """What those who lend so much each lack for a crew, in words."""


class SeatState(Enum):
    """What may be said to a sitter."""

    OPEN = "it can be given a seat"
    SYNCING = "it was sent its part, and has not answered"
    ACTIVE = "it holds its part"


@final
class SeatHolder:
    """A volunteer that has a seat, or waits for one."""

    def __init__(self, volunteer: Volunteer) -> None:
        self.volunteer = volunteer
        self.line = SeatState.OPEN
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
        self.due: float | None = None
        """When it must have answered; None while nothing is wanted of it."""
        self.patience_s = self._left_s = STALL_S
        """How long it may have work without an answer; and how much of that is left since its last one."""
        self.has_loaded = False
        """Whether it has ever held a part: the first one may take long, with PyTorch still to be imported."""
        self.is_awaited = False
        """Whether its answer is overdue, and nobody could have its seat."""
        self.loading_since: float | None = None
        """When it was sent its part; None once it has answered."""
        self.next_member = 0
        """Of the crew's lease: what it has said goes up to here."""
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
        return self.crew is None and self.line is not SeatState.SYNCING

    def forget_part(self) -> None:
        """What it holds is not what it is to hold."""
        self.needs_part, self.said, self.proven_at, self.due = True, None, -1, None

    def owes(self, now: float) -> None:
        """It has been given something to answer."""
        if self.due is None:
            self.due = now + self._left_s

    def owes_nothing(self, now: float) -> None:
        """Its answer is not wanted any more; it has used up some of its time nevertheless."""
        if self.due is not None:
            self._left_s, self.due, self.is_awaited = max(self.due - now, 0.0), None, False

    def answered(self) -> None:
        """It said something that is as it should be."""
        self._left_s, self.due, self.is_awaited = self.patience_s, None, False

    def excuse(self) -> None:
        """It was too slow for its time, and has twice as much from now on: so whoever goes on at all answers once."""
        self.patience_s *= 2.0
        self._left_s, self.due = self.patience_s, None


@final
class Crew:
    """Its seats, some of them empty for a while."""

    def __init__(self, number: int, draft: CrewPlan) -> None:
        self.number = number
        self.cuts, self.shards, self.places = draft.cuts, draft.shards, draft.places
        self.window, self.reason = draft.window, draft.reason
        self.sitters: list[SeatHolder | None] = [None] * len(draft.places)
        self.peer: Peer | None = None
        """Under which the coordinator knows it, once all its seats are ready."""
        self.assignment: Assignment | None = None
        self.results: list[Result] = []
        """Of its last seat, until the digests of all are known."""
        self.sent: list[list[Activations]] = [[] for _ in draft.places[1:]]
        """At each cut, of members whose losses are not handed up; never more than may be on their way."""
        self.direct: frozenset[int] = frozenset()
        """Places whose activations go straight to the next seat."""
        self.through_server: set[int] = set()
        """Places whose activations do not, since that was tried."""
        self.taken = self.reported = self._told = 0
        """The first member of the lease whose loss is not handed up, whose loss is not said,"""
        """and the one up to which the first seat knows that members are through."""
        self.incomplete_since = 0.0

    def seat(self, sitter: SeatHolder, place: int) -> None:
        """Gives a place to somebody."""
        self.sitters[place] = sitter
        sitter.crew, sitter.place = self, place
        sitter.volunteer.tensors = sitter.tensors
        sitter.forget_part()

    def free(self, sitter: SeatHolder, now: float) -> None:
        """Somebody has no place any more."""
        self.through_server -= {sitter.place - 1, sitter.place}
        self.sitters[sitter.place] = sitter.crew = None
        if sitter.line is not SeatState.SYNCING:
            sitter.owes_nothing(now)
        sitter.volunteer.tensors, sitter.is_awaited = (), False
        self.incomplete_since = now

    def lease(self, assignment: Assignment, now: float) -> None:
        """Members are asked of it, first of its first seat."""
        self.end_lease(now)
        self.assignment = assignment
        self.taken = self.reported = self._told = assignment.first_member
        for sitter in self.seated:
            sitter.next_member = assignment.first_member
            if sitter.place == 0:
                sitter.owes(now)

    def end_lease(self, now: float) -> None:
        """Nothing of it is wanted any more; who was sent its part is to answer nevertheless."""
        self.assignment = None
        self.results.clear()
        for sent in self.sent:
            sent.clear()
        for sitter in self.seated:
            if sitter.line is not SeatState.SYNCING:
                sitter.owes_nothing(now)

    def took(self, sitter: SeatHolder, said: Work, now: float) -> None:
        """A seat said something that is as it should be: it and the next one are to go on, and the first one."""
        sitter.next_member = end_of(said)
        if isinstance(said, Activations):
            self.sent[sitter.place].append(said)
        elif isinstance(said, Result):
            self.results.append(said)
            self.reported = sitter.next_member
        sitter.answered()
        follower = self.sitters[sitter.place + 1] if sitter.place + 1 < len(self.sitters) else None
        for one in (sitter, follower, self.sitters[0]):
            if one is not None and self._owes(one):
                one.owes(now)

    def make_room(self) -> list[Send]:
        """Tells the first seat if more members are through than it knows."""
        assignment = self.assignment
        if assignment is None or (through := self._through(assignment)) <= self._told:
            return []
        self._told = through
        return [Send(sitter.peer, Taken(assignment.step, through)) for sitter in self.seated[:1]]

    def _through(self, assignment: Assignment) -> int:
        """All seats are done with the members before, and no more than a group of their losses is not handed up."""
        done = [sitter.next_member for sitter in self.seated]
        return min(*done, self.taken + assignment.group_size)

    def hand_up(self, result: Result) -> None:
        """The losses are taken: what was sent of these members is forgotten."""
        self.taken = result.first_member + result.losses.size
        self.sent = [[said for said in sent if said.first_member >= self.taken] for sent in self.sent]

    def trail(self, first_member: int, n_members: int, *, wire: ActivationCodec) -> ActivationLog:
        """How members went through it whose losses are not handed up."""
        members = range(first_member, first_member + n_members)
        sent = tuple(tuple(said for said in at_cut if said.first_member in members) for at_cut in self.sent)
        return ActivationLog(self.cuts, self.shards, wire, self.places[0].batch, sent)

    def _owes(self, sitter: SeatHolder) -> bool:
        """Whether a seat has been given what it has not answered; the first one owes the first group, however late."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        given = self._given(sitter.place)
        if sitter.place == 0:
            given = min(given, assignment.first_member + assignment.group_size)
        return sitter.next_member < given

    def _given(self, place: int) -> int:
        """The member up to which a seat may have answered."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        if place > 0:
            before = self.sitters[place - 1]
            return before.next_member if before is not None else assignment.first_member
        through, batch = self._through(assignment) - assignment.first_member, self.places[0].batch
        most = reach(through, window=self.window, batch=batch, group_size=assignment.group_size)
        return assignment.first_member + min(assignment.quota, most)

    def message(self, place: int, *, wire: ActivationCodec) -> Seat:
        """What is said to who takes a place."""
        its = self.places[place]
        return Seat(
            crew=self.number,
            cuts=self.cuts,
            shards=self.shards,
            place=place,
            wire=wire,
            batch=its.batch,
            window=self.window,
            member_bytes=its.member_bytes,
            group_bytes=its.group_bytes,
        )

    @property
    def seated(self) -> list[SeatHolder]:
        """Who is there."""
        return [sitter for sitter in self.sitters if sitter is not None]

    @property
    def is_ready(self) -> bool:
        """Whether all places are taken by volunteers that hold their parts."""
        return all(
            sitter is not None and sitter.line is SeatState.ACTIVE and sitter.proven_at >= 0 for sitter in self.sitters
        )

    @property
    def name(self) -> str:
        return f"crew {self.number} ({', '.join(sitter.volunteer.name for sitter in self.seated)})"

    def complaint(self, sitter: SeatHolder, said: Work) -> str:
        """What is wrong with a message of the open lease; empty where nothing is."""
        assignment, last = self.assignment, len(self.places) - 1
        assert assignment is not None, "work without a lease"
        if isinstance(said, Activations) == (sitter.place == last):
            expected = "losses" if sitter.place == last else "activations"
            return f"seat {sitter.place} of {self.name}: expected {expected}, got {type(said).__name__}"
        size = assignment.group_size
        # What came straight from the seat before may be here sooner than word of it.
        is_told = sitter.place - 1 not in self.direct
        most = self._given(sitter.place) if is_told else assignment.first_member + assignment.quota
        if isinstance(said, Taken):
            most = min(most, self.reported + size - 1)
            if sitter.next_member < said.next_member <= most:
                return ""
            expected = f"a member from {sitter.next_member + 1} to {most}"
            return f"members of {self.name}: expected to be through before {expected}, got {said.next_member}"
        n_members = members_of(said)
        first = self.reported if isinstance(said, Result) else sitter.next_member
        if said.first_member != first or not 0 < n_members <= most - first:
            return (
                f"members of {self.name}: expected some from {first} to {most - 1}, "
                f"got {n_members} from {said.first_member} on"
            )
        offset, place = said.first_member - assignment.first_member, self.places[sitter.place]
        if isinstance(said, Result):
            whole = f"members of {self.name}: expected losses of whole groups of {size}, got {n_members}"
            return whole if n_members % size else ""
        if sitter.place not in self.direct:
            misfit = misfit_of(said, place, offset=offset, group_size=size)
        else:
            misfit = f"expected none here, got {len(said.payload)} bytes" if said.payload else ""
        return misfit and f"activations of {self.name}: {misfit}"

    def size_of(self, sitter: SeatHolder, said: Activations) -> int:
        """Bytes of the activations of these members, wherever they went."""
        assignment, place = self.assignment, self.places[sitter.place]
        assert assignment is not None, "work without a lease"
        begins = (said.first_member - assignment.first_member) % assignment.group_size == 0
        return said.n_members * place.member_bytes + (place.group_bytes if begins else 0)


def misfit_of(said: Activations, sizes: StageSpec | SeatBefore, *, offset: int, group_size: int) -> str:
    """How a payload is not what the plan says of members that begin `offset` into a lease; empty where it is."""
    most = min(sizes.batch, group_size - offset % group_size)
    n_bytes = said.n_members * sizes.member_bytes + (0 if offset % group_size else sizes.group_bytes)
    if said.n_members <= most and len(said.payload) == n_bytes:
        return ""
    return f"expected at most {most} members and {n_bytes} bytes of {said.n_members}, got {len(said.payload)} bytes"


def end_of(said: Work) -> int:
    """The member up to which a message is about."""
    return said.next_member if isinstance(said, Taken) else said.first_member + members_of(said)


def members_of(said: Activations | Result) -> int:
    """How many members a message is about."""
    return said.n_members if isinstance(said, Activations) else said.losses.size

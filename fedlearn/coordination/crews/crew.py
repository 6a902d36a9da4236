"""A crew: volunteers that hold one replica together, each a part of it, and the state of each."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, final

import msgspec

from fedlearn.coordination.effects import Peer, Send
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.coordination.work.flow import reach
from fedlearn.wire.encoding.activations import ActivationCodec
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, SeatBefore, Taken

STALL_S = 30.0
"""Seconds after which a seat holder that has not answered its work loses its seat, where others can do without it."""

Work = Activations | Result | Taken
"""Messages of a seat about members that passed through it."""

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
    """Bytes of activations that may be on their way to the stage."""


class CrewPlan(msgspec.Struct, frozen=True):
    """A possible crew."""

    cuts: tuple[int, ...]
    shards: int
    places: tuple[StageSpec, ...]
    order: tuple[int, ...]
    """The volunteer that takes each stage, by its index in the list that was passed to the planner."""
    window: int
    """Messages that may be in flight from the first seat to the last."""
    reason: str = ""
    """Why the model is cut differently than was asked for; empty where it is not."""


class PlansCrews(Protocol):
    """A planner, which knows the model and the ways in which it can be cut."""

    wire: ActivationCodec

    def fits(self, place: StageSpec, memory_bytes: int) -> bool:
        """Whether a volunteer that lends this memory can hold a stage."""

    def draft(self, memories: Sequence[int]) -> CrewPlan | None:
        """A crew of some of the volunteers that lend these memories, in bytes; None: together they can't hold a replica
        yet."""

    def lack(self, memories: Sequence[int]) -> str:
        """Describes what volunteers that lend these memories lack for a crew."""


class SeatState(Enum):
    """States of a seat, by which messages may be sent to its holder."""

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
        """Whether the weights of its stage are still to be sent."""
        self.sent_at: int | None = None
        """Step of the part that was last sent to it; it has been sent every Update since."""
        self.said: tuple[int, bytes] | None = None
        """Step and digest of its last message."""
        self.confirmed_at = -1
        """Step at which its digest was last confirmed."""
        self.due: float | None = None
        """Time by which it must have answered; None while it owes no answer."""
        self.patience_s = self._left_s = STALL_S
        """Seconds that it may have work without an answer; `_left_s` is the part of them left since its last answer."""
        self.has_loaded = False
        """Whether it has ever held a part: loading the first one may take long, since PyTorch must be imported."""
        self.is_awaited = False
        """Whether its answer is overdue while no other volunteer could have its seat."""
        self.loading_since: float | None = None
        """When its part was sent to it; None once it has answered."""
        self.next_member = 0
        """Member of the crew's lease before which it has reported all."""
        self.stalled_at = -1.0
        """When it last failed to answer; holders that did so are given seats after all others."""

    @property
    def peer(self) -> Peer:
        return self.volunteer.peer

    @property
    def tensors(self) -> Tensors:
        """Names of the tensors that it holds, or is to hold."""
        return self.crew.places[self.place].tensors if self.crew is not None else ()

    @property
    def is_spare(self) -> bool:
        """Whether it can be given a seat: a volunteer that was sent a part must have answered first."""
        return self.crew is None and self.line is not SeatState.SYNCING

    def forget_part(self) -> None:
        """Takes note that its weights are not those of its stage."""
        self.needs_part, self.said, self.confirmed_at, self.due = True, None, -1, None

    def owes(self, now: float) -> None:
        """Takes note that it was given work to answer."""
        if self.due is None:
            self.due = now + self._left_s

    def owes_nothing(self, now: float) -> None:
        """Takes note that its answer is not needed any more; the time that it used up stays used."""
        if self.due is not None:
            self._left_s, self.due, self.is_awaited = max(self.due - now, 0.0), None, False

    def answered(self) -> None:
        """Takes note of a correct message."""
        self._left_s, self.due, self.is_awaited = self.patience_s, None, False

    def excuse(self) -> None:
        """Doubles the time that it has, as it was too slow: so every volunteer that goes on at all answers in the
        end."""
        self.patience_s *= 2.0
        self._left_s, self.due = self.patience_s, None


@final
class Crew:
    """A crew's seats, some of which may be empty for a while."""

    def __init__(self, number: int, draft: CrewPlan) -> None:
        self.number = number
        self.cuts, self.shards, self.places = draft.cuts, draft.shards, draft.places
        self.window, self.reason = draft.window, draft.reason
        self.holders: list[SeatHolder | None] = [None] * len(draft.places)
        self.peer: Peer | None = None
        """The number by which the coordinator knows the crew, once all its seats are ready."""
        self.assignment: Assignment | None = None
        self.results: list[Result] = []
        """Results of the last seat that wait until the digests of all seats are known."""
        self.sent: list[list[Activations]] = [[] for _ in draft.places[1:]]
        """Activations at each cut, of members whose losses are not handed up: at most those in flight."""
        self.direct: frozenset[int] = frozenset()
        """Stages whose activations go straight to the next seat."""
        self.through_server: set[int] = set()
        """Stages whose activations go through the server since the direct connection failed."""
        self.taken = self.reported = self._told = 0
        """Members before which losses are handed up (`taken`) and reported (`reported`), and before which the first
        seat knows that members have passed (`_told`)."""
        self.incomplete_since = 0.0

    def seat(self, holder: SeatHolder, place: int) -> None:
        """Gives a seat to a volunteer."""
        self.holders[place] = holder
        holder.crew, holder.place = self, place
        holder.volunteer.tensors = holder.tensors
        holder.forget_part()

    def free(self, holder: SeatHolder, now: float) -> None:
        """Takes a volunteer's seat away."""
        self.through_server -= {holder.place - 1, holder.place}
        self.holders[holder.place] = holder.crew = None
        if holder.line is not SeatState.SYNCING:
            holder.owes_nothing(now)
        holder.volunteer.tensors, holder.is_awaited = (), False
        self.incomplete_since = now

    def lease(self, assignment: Assignment, now: float) -> None:
        """Gives the crew a lease, which begins at its first seat."""
        self.end_lease(now)
        self.assignment = assignment
        self.taken = self.reported = self._told = assignment.first_member
        for holder in self.seated:
            holder.next_member = assignment.first_member
            if holder.place == 0:
                holder.owes(now)

    def end_lease(self, now: float) -> None:
        """Ends the lease without further results; holders that were sent a part must still answer."""
        self.assignment = None
        self.results.clear()
        for sent in self.sent:
            sent.clear()
        for holder in self.seated:
            if holder.line is not SeatState.SYNCING:
                holder.owes_nothing(now)

    def took(self, holder: SeatHolder, said: Work, now: float) -> None:
        """Takes a seat's correct message: this seat and the next one are to go on, and the first one as well."""
        holder.next_member = end_of(said)
        if isinstance(said, Activations):
            self.sent[holder.place].append(said)
        elif isinstance(said, Result):
            self.results.append(said)
            self.reported = holder.next_member
        holder.answered()
        follower = self.holders[holder.place + 1] if holder.place + 1 < len(self.holders) else None
        for one in (holder, follower, self.holders[0]):
            if one is not None and self._owes(one):
                one.owes(now)

    def make_room(self) -> list[Send]:
        """Tells the first seat if more members have passed all seats than it knows of."""
        assignment = self.assignment
        if assignment is None or (through := self._through(assignment)) <= self._told:
            return []
        self._told = through
        return [Send(holder.peer, Taken(assignment.step, through)) for holder in self.seated[:1]]

    def _through(self, assignment: Assignment) -> int:
        """The member before which all seats are done, with at most a group of losses that are not handed up."""
        done = [holder.next_member for holder in self.seated]
        return min(*done, self.taken + assignment.group_size)

    def hand_up(self, result: Result) -> None:
        """Takes note that losses were handed up: the activations of these members are dropped."""
        self.taken = result.first_member + result.losses.size
        self.sent = [[said for said in sent if said.first_member >= self.taken] for sent in self.sent]

    def log(self, first_member: int, n_members: int, *, wire: ActivationCodec) -> ActivationLog:
        """The route through the crew of members whose losses are not handed up."""
        members = range(first_member, first_member + n_members)
        sent = tuple(tuple(said for said in at_cut if said.first_member in members) for at_cut in self.sent)
        return ActivationLog(self.cuts, self.shards, wire, self.places[0].batch, sent)

    def _owes(self, holder: SeatHolder) -> bool:
        """Whether a seat has unanswered work; the first one owes the first group, however late."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        given = self._given(holder.place)
        if holder.place == 0:
            given = min(given, assignment.first_member + assignment.group_size)
        return holder.next_member < given

    def _given(self, place: int) -> int:
        """The member before which a seat may have answered."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        if place > 0:
            before = self.holders[place - 1]
            return before.next_member if before is not None else assignment.first_member
        through, batch = self._through(assignment) - assignment.first_member, self.places[0].batch
        most = reach(through, window=self.window, batch=batch, group_size=assignment.group_size)
        return assignment.first_member + min(assignment.quota, most)

    def message(self, place: int, *, wire: ActivationCodec) -> Seat:
        """The message that tells a volunteer which stage it takes."""
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
        """The holders of seats."""
        return [holder for holder in self.holders if holder is not None]

    @property
    def is_ready(self) -> bool:
        """Whether all stages are held by volunteers that have loaded their parts."""
        return all(
            holder is not None and holder.line is SeatState.ACTIVE and holder.confirmed_at >= 0
            for holder in self.holders
        )

    @property
    def name(self) -> str:
        return f"crew {self.number} ({', '.join(holder.volunteer.name for holder in self.seated)})"

    def complaint(self, holder: SeatHolder, said: Work) -> str:
        """Describes what is wrong with a message of the open lease; empty where nothing is."""
        assignment, last = self.assignment, len(self.places) - 1
        assert assignment is not None, "work without a lease"
        if isinstance(said, Activations) == (holder.place == last):
            expected = "losses" if holder.place == last else "activations"
            return f"seat {holder.place} of {self.name}: expected {expected}, got {type(said).__name__}"
        size = assignment.group_size
        # What came straight from the seat before may be here sooner than word of it.
        is_told = holder.place - 1 not in self.direct
        most = self._given(holder.place) if is_told else assignment.first_member + assignment.quota
        if isinstance(said, Taken):
            most = min(most, self.reported + size - 1)
            if holder.next_member < said.next_member <= most:
                return ""
            expected = f"a member from {holder.next_member + 1} to {most}"
            return f"members of {self.name}: expected to be through before {expected}, got {said.next_member}"
        n_members = members_of(said)
        first = self.reported if isinstance(said, Result) else holder.next_member
        if said.first_member != first or not 0 < n_members <= most - first:
            return (
                f"members of {self.name}: expected some from {first} to {most - 1}, "
                f"got {n_members} from {said.first_member} on"
            )
        offset, place = said.first_member - assignment.first_member, self.places[holder.place]
        if isinstance(said, Result):
            whole = f"members of {self.name}: expected losses of whole groups of {size}, got {n_members}"
            return whole if n_members % size else ""
        if holder.place not in self.direct:
            misfit = misfit_of(said, place, offset=offset, group_size=size)
        else:
            misfit = f"expected none here, got {len(said.payload)} bytes" if said.payload else ""
        return misfit and f"activations of {self.name}: {misfit}"

    def size_of(self, holder: SeatHolder, said: Activations) -> int:
        """Bytes of the activations of these members, by whichever route they went."""
        assignment, place = self.assignment, self.places[holder.place]
        assert assignment is not None, "work without a lease"
        begins = (said.first_member - assignment.first_member) % assignment.group_size == 0
        return said.n_members * place.member_bytes + (place.group_bytes if begins else 0)


def misfit_of(said: Activations, sizes: StageSpec | SeatBefore, *, offset: int, group_size: int) -> str:
    """Describes how a payload differs from the plan, for members `offset` into a lease; empty where it does not."""
    most = min(sizes.batch, group_size - offset % group_size)
    n_bytes = said.n_members * sizes.member_bytes + (0 if offset % group_size else sizes.group_bytes)
    if said.n_members <= most and len(said.payload) == n_bytes:
        return ""
    return f"expected at most {most} members and {n_bytes} bytes of {said.n_members}, got {len(said.payload)} bytes"


def end_of(said: Work) -> int:
    """The member before which a message ends."""
    return said.next_member if isinstance(said, Taken) else said.first_member + members_of(said)


def members_of(said: Activations | Result) -> int:
    """Number of members in a message."""
    return said.n_members if isinstance(said, Activations) else said.losses.size

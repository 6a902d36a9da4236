"""A crew: volunteers that hold one replica together, each a part of it, and the state of each."""

from collections.abc import Sequence
from typing import final

from msgspec import field

from fedlearn.coordination.crews.crew_plan import CrewPlan, StageSpec, Tensors
from fedlearn.coordination.effects import Peer, Send
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Party, Phase, Volunteer
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.coordination.work.flow import reach
from fedlearn.wire.encoding.activations import ActivationCodec
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, SeatBefore, Taken

STALL_S = 30.0
"""Seconds after which a seat holder that has not answered its work loses its seat, where others can do without it."""

Work = Activations | Result | Taken
"""Messages of a seat about members that passed through it."""


@final
class SeatHolder:
    """A volunteer that has a seat, or waits for one."""

    def __init__(self, volunteer: Volunteer) -> None:
        self.volunteer = volunteer
        self.crew: Crew | None = None
        self.stage = 0
        """The number of the stage that its seat holds, from 0 on."""
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
        return self.crew.plan.stages[self.stage].tensors if self.crew is not None else ()

    @property
    def is_spare(self) -> bool:
        """Whether it can be given a seat: a volunteer that was sent a part must have answered first."""
        return self.crew is None and self.volunteer.phase is not Phase.SYNCING

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
class Crew(Party, eq=False):
    """A crew's seats, some of which may be empty for a while."""

    number: int
    plan: CrewPlan
    wire: ActivationCodec
    holders: list[SeatHolder | None] = field(default_factory=list)
    is_up: bool = False
    """Whether all its seats were ready, and none has failed since."""
    line: int = 0
    """The number of the present connections between its seats."""
    assignment: Assignment | None = None
    results: list[Result] = field(default_factory=list)
    """Results of the last seat that wait until the digests of all seats are known."""
    sent: list[list[Activations]] = field(default_factory=list)
    """Activations at each cut, of members whose losses are not handed up: at most those in flight."""
    direct: frozenset[int] = frozenset()
    """Stages whose activations go straight to the next seat."""
    through_server: set[int] = field(default_factory=set)
    """Stages whose activations go through the server since the direct connection failed."""
    taken: int = 0
    """Member before which losses are handed up."""
    reported: int = 0
    """Member before which losses are reported."""
    told: int = 0
    """Member before which the first seat knows that members have passed."""
    incomplete_since: float = 0.0

    def __post_init__(self) -> None:
        self.holders = [None] * len(self.plan.stages)
        self.sent = [[] for _ in self.plan.stages[1:]]

    def seat(self, holder: SeatHolder, stage: int) -> None:
        """Gives a seat to a volunteer."""
        self.holders[stage] = holder
        holder.crew, holder.stage = self, stage
        holder.volunteer.tensors = holder.tensors
        holder.forget_part()
        self._rename()

    def free(self, holder: SeatHolder, now: float) -> None:
        """Takes a volunteer's seat away."""
        self.through_server -= {holder.stage - 1, holder.stage}
        self.holders[holder.stage] = holder.crew = None
        if holder.volunteer.phase is not Phase.SYNCING:
            holder.owes_nothing(now)
        holder.volunteer.tensors, holder.is_awaited = (), False
        self.incomplete_since = now
        self._rename()

    def _rename(self) -> None:
        self.name = f"crew {self.number} ({', '.join(holder.volunteer.name for holder in self.seated)})"

    def put_up(self, reputation: Reputation, line: int) -> None:
        """Begins to take leases, with the volunteers that have its seats now."""
        self.reputation, self.line, self.is_up = reputation, line, True
        self.members_per_s = self.exchange_s = self.member_s = None

    def take_down(self, now: float) -> None:
        """Takes no more leases; the results of the present one so far count."""
        if (lease := self.end(now)) is not None:
            lease.end()
        self.direct, self.is_up = frozenset(), False

    @property
    def volunteers(self) -> Sequence[Volunteer]:
        return [holder.volunteer for holder in self.seated]

    @property
    def is_ready(self) -> bool:
        return self.is_up

    def begin(self, lease: Lease, assignment: Assignment) -> None:
        now = lease.leased_at
        self.end(now)
        self.lease, self.assignment = lease, assignment
        self.taken = self.reported = self.told = assignment.first_member
        for holder in self.seated:
            holder.next_member = assignment.first_member
            if holder.stage == 0:
                holder.owes(now)

    def end(self, now: float) -> Lease | None:
        # Holders that were sent a part must still answer.
        lease, self.lease, self.assignment = self.lease, None, None
        self.results.clear()
        for sent in self.sent:
            sent.clear()
        for holder in self.seated:
            if holder.volunteer.phase is not Phase.SYNCING:
                holder.owes_nothing(now)
        return lease

    def took(self, holder: SeatHolder, said: Work, now: float) -> None:
        """Takes a seat's correct message: this seat and the next one are to go on, and the first one as well."""
        holder.next_member = end_of(said)
        if isinstance(said, Activations):
            self.sent[holder.stage].append(said)
        elif isinstance(said, Result):
            self.results.append(said)
            self.reported = holder.next_member
        holder.answered()
        follower = self.holders[holder.stage + 1] if holder.stage + 1 < len(self.holders) else None
        for one in (holder, follower, self.holders[0]):
            if one is not None and self._owes(one):
                one.owes(now)

    def make_room(self) -> list[Send]:
        """Tells the first seat if more members have passed all seats than it knows of."""
        assignment = self.assignment
        if assignment is None or (through := self._through(assignment)) <= self.told:
            return []
        self.told = through
        return [Send(holder.peer, Taken(assignment.step, through)) for holder in self.seated[:1]]

    def _through(self, assignment: Assignment) -> int:
        """The member before which all seats are done, with at most a group of losses that are not handed up."""
        done = [holder.next_member for holder in self.seated]
        return min(*done, self.taken + assignment.group_size)

    def hand_up(self, result: Result) -> list[Send]:
        """Takes note that losses were handed up: activations of these members are dropped, and others may follow."""
        self.taken = result.first_member + result.losses.size
        self.sent = [[said for said in sent if said.first_member >= self.taken] for sent in self.sent]
        return self.make_room()

    @property
    def is_proven(self) -> bool:
        """Whether every seat's digest of the lease's step was confirmed."""
        step = self.assignment.step if self.assignment is not None else -1
        return all(holder.confirmed_at == step for holder in self.seated)

    def log(self, first_member: int, n_members: int) -> ActivationLog | None:
        if len(self.plan.stages) == 1:
            return None
        members = range(first_member, first_member + n_members)
        sent = tuple(tuple(said for said in at_cut if said.first_member in members) for at_cut in self.sent)
        return ActivationLog(self.plan.cuts, self.plan.shards, self.wire, self.plan.stages[0].batch, sent)

    def _owes(self, holder: SeatHolder) -> bool:
        """Whether a seat has unanswered work; the first one owes the first group, however late."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        given = self._given(holder.stage)
        if holder.stage == 0:
            given = min(given, assignment.first_member + assignment.group_size)
        return holder.next_member < given

    def _given(self, stage: int) -> int:
        """The member before which a seat may have answered."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        if stage > 0:
            before = self.holders[stage - 1]
            return before.next_member if before is not None else assignment.first_member
        through, batch = self._through(assignment) - assignment.first_member, self.plan.stages[0].batch
        most = reach(through, window=self.plan.window, batch=batch, group_size=assignment.group_size)
        return assignment.first_member + min(assignment.quota, most)

    def message(self, stage: int) -> Seat:
        """The message that tells a volunteer which stage it takes."""
        its = self.plan.stages[stage]
        return Seat(
            crew=self.number,
            cuts=self.plan.cuts,
            shards=self.plan.shards,
            place=stage,
            wire=self.wire,
            batch=its.batch,
            window=self.plan.window,
            member_bytes=its.member_bytes,
            group_bytes=its.group_bytes,
        )

    @property
    def seated(self) -> list[SeatHolder]:
        """The holders of seats."""
        return [holder for holder in self.holders if holder is not None]

    @property
    def is_complete(self) -> bool:
        """Whether all stages are held by volunteers that have loaded their parts."""
        return all(
            holder is not None and holder.volunteer.phase is Phase.READY and holder.confirmed_at >= 0
            for holder in self.holders
        )

    def complaint(self, holder: SeatHolder, said: Work) -> str:
        """Describes what is wrong with a message of the open lease; empty where nothing is."""
        assignment, last = self.assignment, len(self.plan.stages) - 1
        assert assignment is not None, "work without a lease"
        if isinstance(said, Activations) == (holder.stage == last):
            expected = "losses" if holder.stage == last else "activations"
            return f"seat {holder.stage} of {self.name}: expected {expected}, got {type(said).__name__}"
        size = assignment.group_size
        # What came straight from the seat before may be here sooner than word of it.
        is_told = holder.stage - 1 not in self.direct
        most = self._given(holder.stage) if is_told else assignment.first_member + assignment.quota
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
        offset, spec = said.first_member - assignment.first_member, self.plan.stages[holder.stage]
        if isinstance(said, Result):
            whole = f"members of {self.name}: expected losses of whole groups of {size}, got {n_members}"
            return whole if n_members % size else ""
        if holder.stage not in self.direct:
            misfit = misfit_of(said, spec, offset=offset, group_size=size)
        else:
            misfit = f"expected none here, got {len(said.payload)} bytes" if said.payload else ""
        return misfit and f"activations of {self.name}: {misfit}"

    def size_of(self, holder: SeatHolder, said: Activations) -> int:
        """Bytes of the activations of these members, by whichever route they went."""
        assignment, spec = self.assignment, self.plan.stages[holder.stage]
        assert assignment is not None, "work without a lease"
        begins = (said.first_member - assignment.first_member) % assignment.group_size == 0
        return said.n_members * spec.member_bytes + (spec.group_bytes if begins else 0)


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

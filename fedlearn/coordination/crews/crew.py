"""A crew: volunteers that hold one replica together, each a part of it, and the state of each."""

from collections.abc import Sequence
from typing import final

from msgspec import field
from msgspec.structs import replace

from fedlearn.coordination.crews.crew_plan import CrewPlan, Tensors
from fedlearn.coordination.crews.summing import PartSums
from fedlearn.coordination.effects import Peer, Send
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Party, Phase, Volunteer
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.coordination.work.flow import reach
from fedlearn.coordination.work.way import (
    MessageSizes,
    Work,
    end_of,
    leg_of,
    members_together,
    way_of,
)
from fedlearn.es.trials import Trials
from fedlearn.tasks.parts.activations import ActivationCodec
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, Taken

STALL_S = 30.0
"""Seconds after which a seat holder that has not answered its work loses its seat, where others can do without it."""

MOST_KEPT_BYTES = 2**26
"""Bytes of activations and cotangents of one lease that are kept to find a false seat; of longer ones none is found.
"""


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
    sums: PartSums | None = None
    """The parts' sums of gradients; None where only losses are measured."""
    way: tuple[int, ...] = ()
    """The stage of each leg of the lease's members."""
    done: list[int] = field(default_factory=list)
    """The member of the lease before which all are through each leg."""
    parts: dict[int, Result] = field(default_factory=dict)
    """The sums of a lease without noise that have come, by stage."""
    sent: list[list[Activations]] = field(default_factory=list)
    """Activations and cotangents after each leg, of members whose losses are not handed up."""
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
        self.way = tuple(range(len(self.plan.stages)))
        self.done = [0] * len(self.way)

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
        self.exchanges.clear()

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
        self.way = way_of(len(self.plan.stages), comes_back=not assignment.perturbation.has_noise)
        self.done = [assignment.first_member] * len(self.way)
        self.sent = [[] for _ in self.way[1:]]
        for holder in self.seated[:1]:
            holder.owes(now)

    def end(self, now: float) -> Lease | None:
        # Holders that were sent a part must still answer.
        lease, self.lease, self.assignment = self.lease, None, None
        self.results.clear()
        self.parts.clear()
        for sent in self.sent:
            sent.clear()
        for holder in self.seated:
            if holder.volunteer.phase is not Phase.SYNCING:
                holder.owes_nothing(now)
        return lease

    def took(self, holder: SeatHolder, said: Work, now: float) -> None:
        """Takes a seat's correct message: this seat and the next one are to go on, and the first one as well."""
        leg = leg_of(self.way, holder.stage, said)
        if isinstance(said, Activations):
            self.sent[leg].append(said if self._keeps_payloads else replace(said, payload=b""))
        if isinstance(said, Result) and self.is_sum:
            self._took_sum(holder.stage, leg, said)
        else:
            self.done[leg] = end_of(said)
            if isinstance(said, Result):
                # Whatever else the last seat reports, only losses are asked for.
                self.results.append(Result(said.step, said.first_member, said.losses, said.digest))
                self.reported = self.done[leg]
        holder.answered()
        follower = self.holders[self.way[leg + 1]] if leg + 1 < len(self.way) else None
        for one in (holder, follower, self.holders[0]):
            if one is not None and self._owes(one):
                one.owes(now)

    def _took_sum(self, stage: int, leg: int, said: Result) -> None:
        assert self.assignment is not None, "work without a lease"
        assert self.sums is not None, "sums of a crew that measures losses"
        self.parts[stage] = said
        self.done[leg] = self.assignment.first_member + self.assignment.quota
        if len(self.parts) == len(self.plan.stages):
            last, asked = self.parts[len(self.parts) - 1], self.assignment
            lease = Trials(asked.step, asked.perturbation, asked.group_size, asked.first_member, asked.quota)
            found = self.sums.joined(lease, last.losses, [part.estimate for _, part in sorted(self.parts.items())])
            self.results.append(replace(last, losses=found.losses, estimate=found.estimate))
            self.reported = self.done[leg]

    @property
    def _keeps_payloads(self) -> bool:
        """Whether what the seats send is kept, which it is until losses are handed up; a sum's until its lease ends."""
        if (asked := self.assignment) is None or asked.perturbation.has_noise:
            return True
        *givers, last = self.plan.stages
        sent = sum(stage.member_bytes + stage.received_bytes for stage in givers) + last.received_bytes
        return asked.quota * sent <= MOST_KEPT_BYTES

    @property
    def is_sum(self) -> bool:
        """Whether the lease's members have no noise, and come back."""
        return self.assignment is not None and not self.assignment.perturbation.has_noise

    def follower(self, holder: SeatHolder, said: Activations) -> SeatHolder | None:
        """The holder to whom a message goes on."""
        return self.holders[self.way[leg_of(self.way, holder.stage, said) + 1]]

    def cut_of(self, holder: SeatHolder, said: Activations) -> int:
        """The number of the cut that a message crosses, from 0 on."""
        return holder.stage - said.backward

    def cut_awaited(self, holder: SeatHolder) -> int:
        """The cut over which that comes which the holder has not answered; -1 where nobody sends it."""
        legs = [leg for leg, stage in enumerate(self.way) if stage == holder.stage and leg > 0]
        late = [leg for leg in legs if self.assignment is not None and self.done[leg] < self.given(leg)]
        leg = (late or legs or [0])[0]
        return min(self.way[leg - 1], self.way[leg]) if leg else -1

    def make_room(self) -> list[Send]:
        """Tells the first seat if more members have passed all seats than it knows of."""
        assignment = self.assignment
        if assignment is None or self.is_sum or (through := self._through(assignment)) <= self.told:
            return []
        self.told = through
        return [Send(holder.peer, Taken(assignment.step, through)) for holder in self.seated[:1]]

    def _through(self, assignment: Assignment) -> int:
        """The member before which all seats are done, with at most a group of losses that are not handed up."""
        if self.is_sum:
            return self.done[-1]
        return min(*self.done, self.taken + assignment.group_size)

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
        sums = tuple(part.estimate for _, part in sorted(self.parts.items()))
        return ActivationLog(self.plan.cuts, self.plan.shards, self.wire, self.plan.stages[0].batch, sent, sums)

    def _owes(self, holder: SeatHolder) -> bool:
        """Whether a seat has unanswered work; the first one owes the first group, however late."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        legs = [leg for leg, stage in enumerate(self.way) if stage == holder.stage]
        if self.is_sum and holder.stage not in self.parts and self.done[legs[-1]] == end_of_lease(assignment):
            return True
        given = {leg: self.given(leg) for leg in legs}
        if not self.is_sum and 0 in given:
            given[0] = min(given[0], assignment.first_member + assignment.group_size)
        return any(self.done[leg] < given[leg] for leg in legs)

    def given(self, leg: int) -> int:
        """The member before which a seat may have answered on a leg."""
        assignment = self.assignment
        assert assignment is not None, "work without a lease"
        if leg > 0:
            return self.done[leg - 1]
        through, batch = self._through(assignment) - assignment.first_member, self.plan.stages[0].batch
        together = members_together(assignment, batch)
        most = reach(through, window=self.plan.window, batch=batch, group_size=together)
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
            received_bytes=its.received_bytes,
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

    def sizes(self, stage: int, said: Activations) -> MessageSizes:
        its = self.plan.stages[stage]
        if said.backward:
            return MessageSizes(its.batch, its.received_bytes)
        return MessageSizes(its.batch, its.member_bytes, its.group_bytes)

    def size_of(self, holder: SeatHolder, said: Activations) -> int:
        """Bytes of the activations or cotangents of these members, by whichever route they went."""
        assignment, sizes = self.assignment, self.sizes(holder.stage, said)
        assert assignment is not None, "work without a lease"
        begins = (said.first_member - assignment.first_member) % assignment.group_size == 0
        return said.n_members * sizes.member_bytes + (sizes.group_bytes if begins else 0)


def end_of_lease(assignment: Assignment) -> int:
    return assignment.first_member + assignment.quota

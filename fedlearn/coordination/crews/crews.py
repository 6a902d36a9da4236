"""The crews of a run: who sits where, what seats say, and when a crew may be leased members.

Between the seats activations are passed on. Every seat applies every Update to its part; the digests of the parts are
compared with the server's own before a Result counts. The coordinator leases to a crew as to any party, takes the
results that it has proven, and asks for seats to be filled after each event.
"""

from collections.abc import Mapping
from typing import final

from fedlearn.coordination.crews.complaints import complaint_of
from fedlearn.coordination.crews.crew import STALL_S, Crew, SeatHolder
from fedlearn.coordination.crews.crew_plan import CrewPlan, PlansCrews, Tensors
from fedlearn.coordination.crews.introducing import introduce
from fedlearn.coordination.crews.summing import PartSums
from fedlearn.coordination.crews.waiting import who_waits
from fedlearn.coordination.effects import (
    DigestParts,
    Joined,
    Left,
    Notice,
    Peer,
    Send,
    SendPart,
    ServerEffect,
)
from fedlearn.coordination.leases.leasing import send_block
from fedlearn.coordination.people.membership import Membership
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.work.way import Work, end_of
from fedlearn.es.layout import ParameterLayout
from fedlearn.tasks.parts.layout import part_layout
from fedlearn.wire.limits import LOADING_LIMIT_S, message_limit_s
from fedlearn.wire.messages import Activations, Farewell, Ready, Result, Resync, Taken, Unreachable

REPLAN_S = 10.0
"""Seconds for which an empty seat waits for a volunteer before the crew is planned anew."""

MAKE_DO_S = 60.0
"""Seconds without a crew, after one broke up, from which on volunteers make do with fewer seats than were asked for."""

SaidBySeat = Ready | Work | Unreachable
"""Messages of a seat about its part and about members that passed through it."""


@final
class Crews:
    """All crews of a run; with `is_direct` their seats send to each other where both consent."""

    def __init__(
        self,
        planner: PlansCrews,
        people: Membership,
        layout: ParameterLayout,
        *,
        seed: int,
        is_direct: bool = False,
    ) -> None:
        """`layout` is that of the whole model, and `seed` the run's."""
        self._layout, self._seed = layout, seed
        self._planner = planner
        self._people = people
        self._is_direct = is_direct
        self._holders: dict[Peer, SeatHolder] = {}
        self._crews: list[Crew] = []
        people.roster.crews = self._crews
        self._may_fill = False
        """Whether there may be seats to give or parts to send."""
        self._crewless_since: float | None = None
        """When the last crew broke up; None while there is one, and before the first."""
        self._makes_do = False
        """Whether a crew may have fewer seats than were asked for."""
        self._digests: dict[tuple[int, Tensors], bytes] = {}
        self._n_crews = self._n_lines = self._shards_told = 0
        self._relayed: dict[str, tuple[int, int, int]] = {}

    def waiting(self, now: float) -> str:
        """Describes what each seat is waited for; empty where all can work."""
        return who_waits(self._spares, self._crews, self._planner, now)

    def take_costs(self) -> str:
        """Describes what a member of the newest crew sends at each cut; empty where its shards are those of the last
        call."""
        crew = self._crews[-1] if self._crews else None
        if crew is None or len(crew.plan.stages) == 1 or crew.plan.shards == self._shards_told:
            return ""
        self._shards_told = crew.plan.shards
        sent = ", ".join(f"{stage.member_bytes} behind seat {n}" for n, stage in enumerate(crew.plan.stages[:-1], 1))
        way = "straight to the next seat where it can" if self._is_direct else "through this server"
        reason = f"; {crew.plan.reason}" if crew.plan.reason else ""
        return f"crew {crew.number} sends bytes a member as {self._planner.wire}, {way}: {sent}{reason}"

    def take_relayed(self) -> dict[str, tuple[int, int, int]]:
        """Members that crossed each cut since the last call, and their bytes through the server and directly."""
        relayed, self._relayed = self._relayed, {}
        return relayed

    # ---- what seats say

    def received(self, volunteer: Volunteer, message: SaidBySeat, now: float) -> list[ServerEffect]:
        """Takes a message of a volunteer that has a seat, or had one."""
        holder = self._holders[volunteer.peer]
        match message:
            case Ready(step, digest):
                volunteer.enter(Phase.READY)
                holder.said, holder.loading_since = (step, digest), None
                holder.has_loaded = self._may_fill = True
                holder.answered()
                if holder.crew is None or holder.needs_part:
                    return []  # its crew broke up meanwhile
                if step != holder.sent_at:
                    return self._refuse(holder, f"Ready: expected step {holder.sent_at}, got {step}")
                return self._prove(holder, now)
            case Activations() | Result() | Taken():
                return self._worked(holder, message, now)
            case Unreachable(is_next, reason):
                return self._give_up_line(holder.crew, holder.stage - (not is_next), reason, now)

    def _worked(self, holder: SeatHolder, said: Work, now: float) -> list[ServerEffect]:
        crew = holder.crew
        if crew is None or crew.assignment is None or said.step != crew.assignment.step:
            return []  # of a step that is over, or of a crew that broke up
        if end_of(said) <= crew.assignment.first_member:
            return []  # of a lease that was given up
        if complaint := complaint_of(crew, holder, said):
            return self._refuse(holder, complaint)
        if not isinstance(said, Taken):
            holder.said = (said.step, said.digest)
        effects: list[ServerEffect] = []
        if isinstance(said, Activations):
            follower, number = crew.follower(holder, said), crew.cut_of(holder, said)
            assert follower is not None, "a lease of a crew that is not complete"
            if number not in crew.direct:
                effects.append(Send(follower.peer, said))
            cut = f"crew {crew.number}, cut {number + 1}"
            n_members, n_bytes, n_direct = self._relayed.get(cut, (0, 0, 0))
            n_members += 0 if said.backward else said.n_members
            n_direct += crew.size_of(holder, said) if number in crew.direct else 0
            self._relayed[cut] = (n_members, n_bytes + len(said.payload), n_direct)
        crew.took(holder, said, now)
        return [*effects, *crew.make_room(), *self._prove(holder, now)]

    def _prove(self, holder: SeatHolder, now: float) -> list[ServerEffect]:
        """Compares the digest that a seat said last with the server's own, if that is known by now."""
        if holder.said is None or holder.crew is None or holder.needs_part:
            return []
        step, digest = holder.said
        expected = self._digests.get((step, holder.tensors))
        if expected is None:
            return []  # the server's replica is not there yet
        if digest != expected:
            effects = self._people.quarantine(holder.volunteer, f"its digest of step {step} is not the server's")
            is_there = holder.volunteer.phase is not Phase.GONE
            return [*effects, *self.wait_for_part(holder.volunteer, now)] if is_there else effects
        if step != holder.sent_at:
            holder.volunteer.n_resyncs = 0  # its own steps are right, and not only what it was sent
        holder.confirmed_at = step
        return self._put_up(holder.crew)

    def _put_up(self, crew: Crew) -> list[ServerEffect]:
        """Has a crew take leases, once all its seats hold their parts."""
        if crew.is_up or not crew.is_complete:
            return []
        self._n_lines += 1
        crew.put_up(self._people.crew_reputation(crew.name, crew.volunteers), self._n_lines)
        return [*(introduce(crew) if self._is_direct else []), Joined(crew.name)]

    def _give_up_line(self, crew: Crew | None, stage: int, reason: str, now: float) -> list[ServerEffect]:
        """Sends a stage's activations through the server from now on, and gives up a lease that lost some."""
        if crew is None or stage not in crew.direct:
            return []
        crew.through_server.add(stage)
        why = f"activations behind seat {stage + 1} go through this server from now on: {reason}"
        return [*self._take_down(crew, why, now), *self._put_up(crew)]

    def take_proven(self) -> list[tuple[Crew, Result]]:
        """The results of which every seat's digest was confirmed since the last call, to be handed up in this order."""
        proven = [(crew, result) for crew in self._crews if crew.results and crew.is_proven for result in crew.results]
        for crew, _ in proven:
            crew.results = []
        return proven

    # ---- the server's own replica

    def applied(self) -> None:
        """Takes note that the replica took a step: seats that waited for it may be sent their parts, and all parts are
        to be digested."""
        self._may_fill = True
        awaited = {holder.sent_at for holder in self._holders.values() if holder.volunteer.phase is Phase.SYNCING}
        self._digests = {key: digest for key, digest in self._digests.items() if key[0] in awaited}

    def digested(self, step: int, digests: Mapping[Tensors, bytes], now: float) -> list[ServerEffect]:
        """Takes the digests of parts of the server's replica before a step."""
        self._digests.update({(step, tensors): digest for tensors, digest in digests.items()})
        effects: list[ServerEffect] = []
        for holder in list(self._holders.values()):
            effects += self._prove(holder, now)
        return effects

    def _ask(self, step: int) -> list[ServerEffect]:
        wanted = {holder.tensors for holder in self._holders.values() if holder.crew is not None}
        unknown = tuple(sorted(tensors for tensors in wanted if (step, tensors) not in self._digests))
        return [DigestParts(unknown)] if unknown else []

    # ---- seats are given and taken

    def wait_for_part(self, volunteer: Volunteer, now: float) -> list[ServerEffect]:
        """Takes a volunteer that can't hold a whole replica, or whose part is not right any more."""
        self._may_fill = True
        holder = self._holders.setdefault(volunteer.peer, SeatHolder(volunteer))
        effects: list[ServerEffect] = []
        if holder.crew is not None:
            effects += self._take_down(holder.crew, f"{volunteer.name} is sent its part again", now)
        holder.forget_part()
        return effects

    def left(self, volunteer: Volunteer, reason: str, now: float) -> list[ServerEffect]:
        """Takes note that a volunteer is gone."""
        holder = self._holders.pop(volunteer.peer)
        return self._free(holder, f"{volunteer.name} left: {reason}", now)

    def tick(self, now: float) -> list[ServerEffect]:
        """Advances the time: holders that do not answer lose their seats, and incomplete crews are planned anew."""
        effects: list[ServerEffect] = []
        stalled = [s for s in self._holders.values() if s.due is not None and now >= s.due]
        for holder in stalled:
            why = f"{holder.volunteer.name} has not answered for {holder.patience_s:g} s"
            if holder.crew is not None and (cut := holder.crew.cut_awaited(holder)) in holder.crew.direct:
                # Whether it was sent anything only the two know.
                effects += self._give_up_line(holder.crew, cut, why, now)
                continue
            if not self._can_do_without(holder):
                holder.due, holder.is_awaited = now + STALL_S, True
                continue
            holder.stalled_at = now
            holder.excuse()
            if holder.crew is not None:
                effects += [Notice(f"{why}; its seat is free"), *self._free(holder, why, now)]
        broken = [c for c in self._crews if None in c.holders and now - c.incomplete_since >= REPLAN_S]
        for crew in broken:
            why = f"{crew.name} is seated anew, as nobody who is there could take its empty place for {REPLAN_S:g} s"
            effects += [Notice(why), *self._disband(crew, now)]
        if self._crewless_since is not None and now - self._crewless_since >= MAKE_DO_S and not self._makes_do:
            self._makes_do = self._may_fill = True
        return effects

    def _can_do_without(self, holder: SeatHolder) -> bool:
        """Whether removing this holder helps: the volunteers that wait can hold a replica with the rest of its crew."""
        if holder.crew is None:
            return True
        others = [other for other in holder.crew.seated if other is not holder]
        return self._planner.draft([other.volunteer.memory_bytes for other in (*others, *self._spares)]) is not None

    def _refuse(self, holder: SeatHolder, reason: str) -> list[ServerEffect]:
        return self._people.dismiss(holder.volunteer, Farewell("refused", reason))

    def _free(self, holder: SeatHolder, reason: str, now: float) -> list[ServerEffect]:
        """Takes a volunteer's seat away; the others keep theirs."""
        if (crew := holder.crew) is None:
            return []
        effects = self._take_down(crew, reason, now)
        crew.free(holder, now)
        return effects

    def _take_down(self, crew: Crew, reason: str, now: float) -> list[ServerEffect]:
        """Withdraws a crew that can't work for now."""
        was_up, self._may_fill = crew.is_up, True
        crew.take_down(now)
        return [Left(crew.name, reason)] if was_up else []

    def _disband(self, crew: Crew, now: float) -> list[ServerEffect]:
        """Dissolves a crew; its volunteers may be seated elsewhere from now on."""
        effects = self._take_down(crew, "it breaks up", now)
        for holder in crew.seated:
            crew.free(holder, now)
        self._crews.remove(crew)
        self._crewless_since = None if self._crews else now
        return effects

    def fill(self, now: float, *, step: int, block: bytes, is_applying: bool) -> list[ServerEffect]:
        """Gives seats to volunteers that wait for one, and sends parts to those that need them, if anything has
        changed.

        The server's replica stands before `step`, of which this is the `block`, or is applying the Update before it.
        """
        if not self._may_fill:
            return []
        self._may_fill = False
        effects = self._grow(now)
        for crew in self._crews:
            for stage, holder in enumerate(crew.holders):
                if holder is None and (spare := self._spare_for(crew, stage)) is not None:
                    crew.seat(spare, stage)
        while spares := self._spares:
            memories = [holder.volunteer.memory_bytes for holder in spares]
            if (draft := self._planner.draft(memories)) is not None:
                self._makes_do = False
            elif self._makes_do and not self._crews:
                draft = self._planner.draft(memories, fewer=True)
            if draft is None:
                break
            crew = self._new_crew(draft, spares)
            if self._makes_do:
                effects.append(Notice(f"{crew.name} makes do without the seats that nobody came for"))
        return effects if is_applying else [*effects, *self._send_parts(now, step, block), *self._ask(step)]

    def _new_crew(self, draft: CrewPlan, spares: list[SeatHolder]) -> Crew:
        self._n_crews += 1
        sums = PartSums(
            self._layout,
            lambda: [part_layout(self._layout, stage.tensors) for stage in draft.stages],
            seed=self._seed,
        )
        crew = Crew(self._n_crews, draft, self._planner.wire, sums=sums)
        for stage, number in enumerate(draft.order):
            crew.seat(spares[number], stage)
        self._crews.append(crew)
        self._crewless_since = None
        return crew

    def _grow(self, now: float) -> list[ServerEffect]:
        """Breaks up a crew that makes do, once volunteers are there for all seats."""
        if not (self._makes_do and self._crews and self._spares):
            return []
        (crew,) = self._crews
        memories = [holder.volunteer.memory_bytes for holder in (*crew.seated, *self._spares)]
        if self._planner.draft(memories) is None:
            return []
        return [Notice(f"{crew.name} is seated anew: there is somebody for every seat"), *self._disband(crew, now)]

    def _send_parts(self, now: float, step: int, block: bytes) -> list[ServerEffect]:
        effects: list[ServerEffect] = []
        for holder in self._holders.values():
            crew, volunteer = holder.crew, holder.volunteer
            if crew is None or not holder.needs_part or volunteer.phase is Phase.SYNCING:
                continue
            if volunteer.phase is Phase.READY:
                effects.append(Send(holder.peer, Resync("it takes another seat")))
                volunteer.enter(Phase.WAITING)
            blocks = send_block(volunteer, block)
            effects += [Send(holder.peer, crew.message(holder.stage)), *blocks, SendPart(holder.peer, holder.tensors)]
            volunteer.enter(Phase.SYNCING)
            holder.needs_part, holder.sent_at, holder.loading_since = False, step, now
            holder.due = now + holder.patience_s + message_limit_s(crew.plan.stages[holder.stage].need_bytes)
            holder.due += 0.0 if holder.has_loaded else LOADING_LIMIT_S
        return effects

    @property
    def _spares(self) -> list[SeatHolder]:
        spares = [holder for holder in self._holders.values() if holder.is_spare]
        return sorted(spares, key=lambda holder: holder.stalled_at)

    def _spare_for(self, crew: Crew, stage: int) -> SeatHolder | None:
        able = (s for s in self._spares if self._planner.fits(crew.plan.stages[stage], s.volunteer.memory_bytes))
        return next(able, None)

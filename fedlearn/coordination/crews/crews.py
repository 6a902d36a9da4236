"""Crews as a pure machine between the coordinator and volunteers that can't hold a whole replica.

The coordinator sees a crew as it sees any volunteer, under the number of a connection that does not exist: what it
wants said there goes to all seats, and what its last seat reports comes from there. Between the seats activations are
passed on. Every seat applies every Update to its part; the digests of the parts are compared with the server's own
before a Result counts.
"""

from collections.abc import Iterable
from typing import final

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.crews.crew import STALL_S, Crew, PlansCrews, SeatHolder, SeatState, Tensors, Work, end_of
from fedlearn.coordination.crews.introducing import introduce
from fedlearn.coordination.crews.waiting import who_waits
from fedlearn.coordination.effects import (
    ApplyUpdate,
    Broadcast,
    DigestParts,
    Dismiss,
    NeedsSeat,
    Notice,
    Peer,
    Recompute,
    Send,
    SendBlock,
    SendPart,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.leases.leasing import send_block
from fedlearn.es.update import Update
from fedlearn.wire.limits import LOADING_LIMIT_S, message_limit_s
from fedlearn.wire.messages import Activations, Assignment, Credit, Message, Ready, Result, Resync, Taken, Unreachable

REPLAN_S = 10.0
"""Seconds for which an empty seat waits for a volunteer before the crew is planned anew."""


@final
class Crews:
    """All crews of a run; `begun_at` is the step at which the coordinator begins."""

    def __init__(
        self, coordinator: Coordinator, planner: PlansCrews, *, begun_at: int, is_direct: bool = False
    ) -> None:
        self._coordinator = coordinator
        self._planner = planner
        self._is_direct = is_direct
        self._holders: dict[Peer, SeatHolder] = {}
        self._crews: list[Crew] = []
        self._by_peer: dict[Peer, Crew] = {}
        self._step = begun_at
        """The step before which the server's replica stands, once no Update is being applied."""
        self._is_applying = self._may_fill = False
        """Whether the replica is applying an Update, and whether there may be seats to give or parts to send."""
        self._digests: dict[tuple[int, Tensors], bytes] = {}
        self._n_crews = self._shards_told = 0
        self._last_peer = 0
        self._relayed: dict[str, tuple[int, int, int]] = {}

    # ---- what the coordinator wants done

    def translate(self, effects: Iterable[ServerEffect], now: float) -> list[ServerEffect]:
        """Translates effects to connections that exist, and gives seats to volunteers that can have one now.

        All effects of the coordinator and of the methods below pass here once, in order.
        """
        return [*self._translate(effects, now), *self._fill(now)]

    def _translate(self, effects: Iterable[ServerEffect], now: float) -> list[ServerEffect]:
        translated: list[ServerEffect] = []
        for effect in effects:
            match effect:
                case NeedsSeat(peer):
                    translated += self._translate(self._wants_part(peer, now), now)
                case Send(peer, Credit()) if peer in self._holders and self._holders[peer].line is not SeatState.ACTIVE:
                    pass  # it hears of it with the next one
                case Send(peer, message) if peer in self._by_peer:
                    translated += self._told(self._by_peer[peer], message, now)
                case Broadcast(peers, Update() as update):
                    translated += self._broadcast(peers, update, now)
                case SendWeights(peer) if peer in self._by_peer:
                    ready = Ready(*self._coordinator.position)
                    translated += self._translate(self._coordinator.received(peer, ready, now), now)
                case SendBlock(peer, block) if peer in self._by_peer:
                    for holder in self._by_peer[peer].seated:
                        translated += send_block(holder.volunteer, block)
                case Dismiss(peer) if peer in self._by_peer:
                    translated += self._translate(self._disband(self._by_peer.pop(peer), now), now)
                case Dismiss(peer, farewell) if peer in self._holders:
                    left = self.disconnected(peer, farewell.reason, now)
                    translated += [effect, *self._translate(left, now)]
                case ApplyUpdate(update):
                    self._step, self._is_applying = update.step + 1, True
                    translated.append(effect)
                case _:
                    translated.append(effect)
        return translated

    def _told(self, crew: Crew, message: Message, now: float) -> list[ServerEffect]:
        if not isinstance(message, Assignment):
            return []  # its seats hear of their own credit
        crew.lease(message, now)
        return [Send(holder.peer, message) for holder in crew.seated]

    def _broadcast(self, peers: tuple[Peer, ...], update: Update, now: float) -> list[ServerEffect]:
        """Sends the Update, which ends the step, to all seats as well."""
        seats = [holder for holder in self._holders.values() if holder.line is not SeatState.OPEN]
        real = [peer for peer in peers if peer not in self._by_peer]
        followers = tuple(dict.fromkeys([*real, *(holder.peer for holder in seats)]))
        for crew in self._crews:
            crew.end_lease(now)
        blocks = [effect for holder in seats for effect in send_block(holder.volunteer, update.block)]
        return [*blocks, Broadcast(followers, update)]

    def waiting(self, now: float) -> str:
        """Describes what each seat is waited for; empty where all can work."""
        return who_waits(self._spares, self._crews, self._planner, now)

    def take_costs(self) -> str:
        """Describes what a member of the newest crew sends at each cut; empty where its shards are those of the last
        call."""
        crew = self._crews[-1] if self._crews else None
        if crew is None or len(crew.places) == 1 or crew.shards == self._shards_told:
            return ""
        self._shards_told = crew.shards
        sent = ", ".join(f"{place.member_bytes} behind seat {n}" for n, place in enumerate(crew.places[:-1], 1))
        way = "straight to the next seat where it can" if self._is_direct else "through this server"
        reason = f"; {crew.reason}" if crew.reason else ""
        return f"crew {crew.number} sends bytes a member as {self._planner.wire}, {way}: {sent}{reason}"

    def take_relayed(self) -> dict[str, tuple[int, int, int]]:
        """Members that crossed each cut since the last call, and their bytes through the server and directly."""
        relayed, self._relayed = self._relayed, {}
        return relayed

    # ---- what seats say

    def hears(self, peer: Peer, message: Message) -> bool:
        """Whether the message concerns a seat; all others are for the coordinator."""
        return peer in self._holders and isinstance(message, Ready | Work | Unreachable)

    def received(self, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        """Takes a message that concerns a seat."""
        holder = self._holders[peer]
        match message:
            case Ready(step, digest):
                holder.line, holder.said = SeatState.ACTIVE, (step, digest)
                holder.has_loaded = self._may_fill = True
                holder.loading_since = None
                holder.answered()
                if holder.crew is None or holder.needs_part:
                    return []  # its crew broke up meanwhile
                if step != holder.sent_at:
                    return self._refuse(holder, f"Ready: expected step {holder.sent_at}, got {step}")
                return self._prove(holder, now)
            case Activations() | Result() | Taken():
                return self._worked(holder, message, now)
            case Unreachable(is_next, reason):
                return self._give_up_line(holder.crew, holder.place - (not is_next), reason, now)
        raise AssertionError("messages that are about no seat are the coordinator's")

    def _worked(self, holder: SeatHolder, said: Work, now: float) -> list[ServerEffect]:
        crew = holder.crew
        if crew is None or crew.assignment is None or said.step != crew.assignment.step:
            return []  # of a step that is over, or of a crew that broke up
        if end_of(said) <= crew.assignment.first_member:
            return []  # of a lease that was given up
        if complaint := crew.complaint(holder, said):
            return self._refuse(holder, complaint)
        if not isinstance(said, Taken):
            holder.said = (said.step, said.digest)
        effects: list[ServerEffect] = []
        if isinstance(said, Activations):
            follower = crew.holders[holder.place + 1]
            assert follower is not None, "a lease of a crew that is not complete"
            if holder.place not in crew.direct:
                effects.append(Send(follower.peer, said))
            cut = f"crew {crew.number}, cut {holder.place + 1}"
            n_members, n_bytes, n_direct = self._relayed.get(cut, (0, 0, 0))
            n_direct += crew.size_of(holder, said) if holder.place in crew.direct else 0
            self._relayed[cut] = (n_members + said.n_members, n_bytes + len(said.payload), n_direct)
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
            drift = f"its digest of step {step} is not the server's"
            return self._coordinator.drifted(holder.peer, drift)
        if step != holder.sent_at:
            holder.volunteer.n_resyncs = 0  # its own steps are right, and not only what it was sent
        holder.confirmed_at = step
        return self._hand_up(holder.crew, now) if holder.crew.peer is not None else self._put_up(holder.crew)

    def _put_up(self, crew: Crew) -> list[ServerEffect]:
        """Tells the coordinator of a crew, once all its seats hold their parts."""
        if not crew.is_ready:
            return []
        self._last_peer -= 1
        crew.peer = self._last_peer
        self._by_peer[crew.peer] = crew
        named = introduce(crew) if self._is_direct else []
        seated = self._coordinator.seated(crew.peer, crew.name, [holder.volunteer for holder in crew.seated])
        return [*named, *seated]

    def _give_up_line(self, crew: Crew | None, place: int, reason: str, now: float) -> list[ServerEffect]:
        """Sends a stage's activations through the server from now on, and gives up a lease that lost some."""
        if crew is None or place not in crew.direct:
            return []
        crew.through_server.add(place)
        why = f"activations behind seat {place + 1} go through this server from now on: {reason}"
        return [*self._take_down(crew, why, now), *self._put_up(crew)]

    def _hand_up(self, crew: Crew, now: float) -> list[ServerEffect]:
        """Hands results to the coordinator once every seat's digest of the step was confirmed."""
        assignment, peer = crew.assignment, crew.peer
        if assignment is None or peer is None:
            return []
        if any(holder.confirmed_at != assignment.step for holder in crew.seated):
            return []
        results, crew.results = crew.results, []
        effects: list[ServerEffect] = []
        for result in results:
            whole = Result(result.step, result.first_member, result.losses, self._coordinator.position[1])
            drawn = [self._with_log(crew, effect) for effect in self._coordinator.received(peer, whole, now)]
            crew.hand_up(result)
            effects += [*crew.make_room(), *drawn]
        return effects

    def _with_log(self, crew: Crew, effect: ServerEffect) -> ServerEffect:
        """Adds the route through the crew's seats to an effect that checks some of its results."""
        if not isinstance(effect, Recompute) or len(crew.places) == 1:
            return effect
        claim = effect.claim
        log = crew.log(claim.trials.first_member, claim.trials.n_members, wire=self._planner.wire)
        return Recompute(claim.through(log))

    # ---- the server's own replica

    def applied(self) -> None:
        """Takes note that the replica took a step: seats that waited for it are sent their parts, and all parts are
        digested.

        The next call of `translate` does that, before the effects that it is given.
        """
        self._is_applying, self._may_fill = False, True
        awaited = {holder.sent_at for holder in self._holders.values() if holder.line is SeatState.SYNCING}
        self._digests = {key: digest for key, digest in self._digests.items() if key[0] in awaited}

    def digested(self, step: int, digests: dict[Tensors, bytes], now: float) -> list[ServerEffect]:
        """Takes the digests of parts of the server's replica before a step."""
        self._digests.update({(step, tensors): digest for tensors, digest in digests.items()})
        effects: list[ServerEffect] = []
        for holder in list(self._holders.values()):
            effects += self._prove(holder, now)
        return effects

    def _ask(self) -> list[ServerEffect]:
        wanted = {holder.tensors for holder in self._holders.values() if holder.crew is not None}
        unknown = tuple(sorted(tensors for tensors in wanted if (self._step, tensors) not in self._digests))
        return [DigestParts(unknown)] if unknown else []

    # ---- seats are given and taken

    def _wants_part(self, peer: Peer, now: float) -> list[ServerEffect]:
        """Takes a volunteer that can't hold a whole replica, or whose part is not right any more."""
        if (holder := self._holders.get(peer)) is None:
            self._holders[peer] = SeatHolder(self._coordinator.volunteer(peer))
            self._may_fill = True
            return []
        holder.line, self._may_fill = SeatState.OPEN, True
        effects: list[ServerEffect] = []
        if holder.crew is not None:
            effects += self._take_down(holder.crew, f"{holder.volunteer.name} is sent its part again", now)
        holder.forget_part()
        return effects

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        """Takes note that a volunteer is gone."""
        holder = self._holders.pop(peer, None)
        if holder is None:
            return []
        return self._free(holder, f"{holder.volunteer.name} left: {reason}", now)

    def tick(self, now: float) -> list[ServerEffect]:
        """Advances the time: holders that do not answer lose their seats, and incomplete crews are planned anew."""
        effects: list[ServerEffect] = []
        stalled = [s for s in self._holders.values() if s.due is not None and now >= s.due]
        for holder in stalled:
            why = f"{holder.volunteer.name} has not answered for {holder.patience_s:g} s"
            if holder.crew is not None and holder.place - 1 in holder.crew.direct:
                # Whether it was sent anything only the two know.
                effects += self._give_up_line(holder.crew, holder.place - 1, why, now)
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
        return effects

    def _can_do_without(self, holder: SeatHolder) -> bool:
        """Whether removing this holder helps: the volunteers that wait can hold a replica with the rest of its crew."""
        if holder.crew is None:
            return True
        others = [other for other in holder.crew.seated if other is not holder]
        return self._planner.draft([other.volunteer.memory_bytes for other in (*others, *self._spares)]) is not None

    def _refuse(self, holder: SeatHolder, reason: str) -> list[ServerEffect]:
        return self._coordinator.refuse(holder.peer, reason)

    def _free(self, holder: SeatHolder, reason: str, now: float) -> list[ServerEffect]:
        """Takes a volunteer's seat away; the others keep theirs."""
        if (crew := holder.crew) is None:
            return []
        crew.free(holder, now)
        return self._take_down(crew, reason, now)

    def _take_down(self, crew: Crew, reason: str, now: float) -> list[ServerEffect]:
        """Withdraws a crew that can't work for now."""
        crew.end_lease(now)
        crew.direct = frozenset()
        self._may_fill = True
        if crew.peer is None:
            return []
        peer, crew.peer = crew.peer, None
        self._by_peer.pop(peer, None)
        return self._coordinator.disconnected(peer, reason, now)

    def _disband(self, crew: Crew, now: float) -> list[ServerEffect]:
        """Dissolves a crew; its volunteers may be seated elsewhere from now on."""
        effects = self._take_down(crew, "it breaks up", now)
        for holder in crew.seated:
            crew.free(holder, now)
        self._crews = [other for other in self._crews if other is not crew]
        return effects

    def _fill(self, now: float) -> list[ServerEffect]:
        """Gives seats to volunteers that wait for one, and sends parts to those that need them, if anything has
        changed."""
        if not self._may_fill or self._coordinator.is_over:
            return []
        self._may_fill = False
        for crew in self._crews:
            for place, holder in enumerate(crew.holders):
                if holder is None and (spare := self._spare_for(crew, place)) is not None:
                    crew.seat(spare, place)
        while spares := self._spares:
            draft = self._planner.draft([holder.volunteer.memory_bytes for holder in spares])
            if draft is None:
                break
            self._n_crews += 1
            crew = Crew(self._n_crews, draft)
            for place, number in enumerate(draft.order):
                crew.seat(spares[number], place)
            self._crews.append(crew)
        return [] if self._is_applying else [*self._send_parts(now), *self._ask()]

    def _send_parts(self, now: float) -> list[ServerEffect]:
        effects: list[ServerEffect] = []
        for holder in self._holders.values():
            crew = holder.crew
            if crew is None or not holder.needs_part or holder.line is SeatState.SYNCING:
                continue
            if holder.line is SeatState.ACTIVE:
                effects.append(Send(holder.peer, Resync("it takes another seat")))
            seat = crew.message(holder.place, wire=self._planner.wire)
            block = send_block(holder.volunteer, self._coordinator.block)
            effects += [Send(holder.peer, seat), *block, SendPart(holder.peer, holder.tensors)]
            holder.line, holder.needs_part, holder.sent_at = SeatState.SYNCING, False, self._step
            holder.loading_since = now
            holder.due = now + holder.patience_s + message_limit_s(crew.places[holder.place].need_bytes)
            holder.due += 0.0 if holder.has_loaded else LOADING_LIMIT_S
        return effects

    @property
    def _spares(self) -> list[SeatHolder]:
        spares = [holder for holder in self._holders.values() if holder.is_spare]
        return sorted(spares, key=lambda holder: holder.stalled_at)

    def _spare_for(self, crew: Crew, place: int) -> SeatHolder | None:
        able = (s for s in self._spares if self._planner.fits(crew.places[place], s.volunteer.memory_bytes))
        return next(able, None)

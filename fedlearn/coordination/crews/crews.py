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
        self._sitters: dict[Peer, SeatHolder] = {}
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
                case Send(peer, Credit()) if peer in self._sitters and self._sitters[peer].line is not SeatState.ACTIVE:
                    pass  # it hears of it with the next one
                case Send(peer, message) if peer in self._by_peer:
                    translated += self._told(self._by_peer[peer], message, now)
                case Broadcast(peers, Update() as update):
                    translated += self._broadcast(peers, update, now)
                case SendWeights(peer) if peer in self._by_peer:
                    ready = Ready(*self._coordinator.position)
                    translated += self._translate(self._coordinator.received(peer, ready, now), now)
                case SendBlock(peer, block) if peer in self._by_peer:
                    for sitter in self._by_peer[peer].seated:
                        translated += send_block(sitter.volunteer, block)
                case Dismiss(peer) if peer in self._by_peer:
                    translated += self._translate(self._disband(self._by_peer.pop(peer), now), now)
                case Dismiss(peer, farewell) if peer in self._sitters:
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
        return [Send(sitter.peer, message) for sitter in crew.seated]

    def _broadcast(self, peers: tuple[Peer, ...], update: Update, now: float) -> list[ServerEffect]:
        """Sends the Update, which ends the step, to all seats as well."""
        seats = [sitter for sitter in self._sitters.values() if sitter.line is not SeatState.OPEN]
        real = [peer for peer in peers if peer not in self._by_peer]
        followers = tuple(dict.fromkeys([*real, *(sitter.peer for sitter in seats)]))
        for crew in self._crews:
            crew.end_lease(now)
        blocks = [effect for sitter in seats for effect in send_block(sitter.volunteer, update.block)]
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
        return peer in self._sitters and isinstance(message, Ready | Work | Unreachable)

    def received(self, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        """Takes a message that concerns a seat."""
        sitter = self._sitters[peer]
        match message:
            case Ready(step, digest):
                sitter.line, sitter.said = SeatState.ACTIVE, (step, digest)
                sitter.has_loaded = self._may_fill = True
                sitter.loading_since = None
                sitter.answered()
                if sitter.crew is None or sitter.needs_part:
                    return []  # its crew broke up meanwhile
                if step != sitter.sent_at:
                    return self._refuse(sitter, f"Ready: expected step {sitter.sent_at}, got {step}")
                return self._prove(sitter, now)
            case Activations() | Result() | Taken():
                return self._worked(sitter, message, now)
            case Unreachable(is_next, reason):
                return self._give_up_line(sitter.crew, sitter.place - (not is_next), reason, now)
        raise AssertionError("messages that are about no seat are the coordinator's")

    def _worked(self, sitter: SeatHolder, said: Work, now: float) -> list[ServerEffect]:
        crew = sitter.crew
        if crew is None or crew.assignment is None or said.step != crew.assignment.step:
            return []  # of a step that is over, or of a crew that broke up
        if end_of(said) <= crew.assignment.first_member:
            return []  # of a lease that was given up
        if complaint := crew.complaint(sitter, said):
            return self._refuse(sitter, complaint)
        if not isinstance(said, Taken):
            sitter.said = (said.step, said.digest)
        effects: list[ServerEffect] = []
        if isinstance(said, Activations):
            follower = crew.sitters[sitter.place + 1]
            assert follower is not None, "a lease of a crew that is not complete"
            if sitter.place not in crew.direct:
                effects.append(Send(follower.peer, said))
            cut = f"crew {crew.number}, cut {sitter.place + 1}"
            n_members, n_bytes, n_direct = self._relayed.get(cut, (0, 0, 0))
            n_direct += crew.size_of(sitter, said) if sitter.place in crew.direct else 0
            self._relayed[cut] = (n_members + said.n_members, n_bytes + len(said.payload), n_direct)
        crew.took(sitter, said, now)
        return [*effects, *crew.make_room(), *self._prove(sitter, now)]

    def _prove(self, sitter: SeatHolder, now: float) -> list[ServerEffect]:
        """Compares the digest that a seat said last with the server's own, if that is known by now."""
        if sitter.said is None or sitter.crew is None or sitter.needs_part:
            return []
        step, digest = sitter.said
        expected = self._digests.get((step, sitter.tensors))
        if expected is None:
            return []  # the server's replica is not there yet
        if digest != expected:
            drift = f"its digest of step {step} is not the server's"
            return self._coordinator.drifted(sitter.peer, drift)
        if step != sitter.sent_at:
            sitter.volunteer.n_resyncs = 0  # its own steps are right, and not only what it was sent
        sitter.proven_at = step
        return self._hand_up(sitter.crew, now) if sitter.crew.peer is not None else self._put_up(sitter.crew)

    def _put_up(self, crew: Crew) -> list[ServerEffect]:
        """Tells the coordinator of a crew, once all its seats hold their parts."""
        if not crew.is_ready:
            return []
        self._last_peer -= 1
        crew.peer = self._last_peer
        self._by_peer[crew.peer] = crew
        named = introduce(crew) if self._is_direct else []
        seated = self._coordinator.seated(crew.peer, crew.name, [sitter.volunteer for sitter in crew.seated])
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
        if any(sitter.proven_at != assignment.step for sitter in crew.seated):
            return []
        results, crew.results = crew.results, []
        effects: list[ServerEffect] = []
        for result in results:
            whole = Result(result.step, result.first_member, result.losses, self._coordinator.position[1])
            drawn = [self._with_trail(crew, effect) for effect in self._coordinator.received(peer, whole, now)]
            crew.hand_up(result)
            effects += [*crew.make_room(), *drawn]
        return effects

    def _with_trail(self, crew: Crew, effect: ServerEffect) -> ServerEffect:
        """Adds the route through the crew's seats to an effect that checks some of its results."""
        if not isinstance(effect, Recompute) or len(crew.places) == 1:
            return effect
        claim = effect.claim
        trail = crew.trail(claim.trials.first_member, claim.trials.n_members, wire=self._planner.wire)
        return Recompute(claim.through(trail))

    # ---- the server's own replica

    def applied(self) -> None:
        """Takes note that the replica took a step: seats that waited for it are sent their parts, and all parts are
        digested.

        The next call of `translate` does that, before the effects that it is given.
        """
        self._is_applying, self._may_fill = False, True
        awaited = {sitter.sent_at for sitter in self._sitters.values() if sitter.line is SeatState.SYNCING}
        self._digests = {key: digest for key, digest in self._digests.items() if key[0] in awaited}

    def digested(self, step: int, digests: dict[Tensors, bytes], now: float) -> list[ServerEffect]:
        """Takes the digests of parts of the server's replica before a step."""
        self._digests.update({(step, tensors): digest for tensors, digest in digests.items()})
        effects: list[ServerEffect] = []
        for sitter in list(self._sitters.values()):
            effects += self._prove(sitter, now)
        return effects

    def _ask(self) -> list[ServerEffect]:
        wanted = {sitter.tensors for sitter in self._sitters.values() if sitter.crew is not None}
        unknown = tuple(sorted(tensors for tensors in wanted if (self._step, tensors) not in self._digests))
        return [DigestParts(unknown)] if unknown else []

    # ---- seats are given and taken

    def _wants_part(self, peer: Peer, now: float) -> list[ServerEffect]:
        """Takes a volunteer that can't hold a whole replica, or whose part is not right any more."""
        if (sitter := self._sitters.get(peer)) is None:
            self._sitters[peer] = SeatHolder(self._coordinator.volunteer(peer))
            self._may_fill = True
            return []
        sitter.line, self._may_fill = SeatState.OPEN, True
        effects: list[ServerEffect] = []
        if sitter.crew is not None:
            effects += self._take_down(sitter.crew, f"{sitter.volunteer.name} is sent its part again", now)
        sitter.forget_part()
        return effects

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        """Takes note that a volunteer is gone."""
        sitter = self._sitters.pop(peer, None)
        if sitter is None:
            return []
        return self._free(sitter, f"{sitter.volunteer.name} left: {reason}", now)

    def tick(self, now: float) -> list[ServerEffect]:
        """Advances the time: holders that do not answer lose their seats, and incomplete crews are planned anew."""
        effects: list[ServerEffect] = []
        stalled = [s for s in self._sitters.values() if s.due is not None and now >= s.due]
        for sitter in stalled:
            why = f"{sitter.volunteer.name} has not answered for {sitter.patience_s:g} s"
            if sitter.crew is not None and sitter.place - 1 in sitter.crew.direct:
                # Whether it was sent anything only the two know.
                effects += self._give_up_line(sitter.crew, sitter.place - 1, why, now)
                continue
            if not self._can_do_without(sitter):
                sitter.due, sitter.is_awaited = now + STALL_S, True
                continue
            sitter.stalled_at = now
            sitter.excuse()
            if sitter.crew is not None:
                effects += [Notice(f"{why}; its seat is free"), *self._free(sitter, why, now)]
        broken = [c for c in self._crews if None in c.sitters and now - c.incomplete_since >= REPLAN_S]
        for crew in broken:
            why = f"{crew.name} is seated anew, as nobody who is there could take its empty place for {REPLAN_S:g} s"
            effects += [Notice(why), *self._disband(crew, now)]
        return effects

    def _can_do_without(self, sitter: SeatHolder) -> bool:
        """Whether removing this holder helps: the volunteers that wait can hold a replica with the rest of its crew."""
        if sitter.crew is None:
            return True
        others = [other for other in sitter.crew.seated if other is not sitter]
        return self._planner.draft([other.volunteer.memory_bytes for other in (*others, *self._spares)]) is not None

    def _refuse(self, sitter: SeatHolder, reason: str) -> list[ServerEffect]:
        return self._coordinator.refuse(sitter.peer, reason)

    def _free(self, sitter: SeatHolder, reason: str, now: float) -> list[ServerEffect]:
        """Takes a volunteer's seat away; the others keep theirs."""
        if (crew := sitter.crew) is None:
            return []
        crew.free(sitter, now)
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
        for sitter in crew.seated:
            crew.free(sitter, now)
        self._crews = [other for other in self._crews if other is not crew]
        return effects

    def _fill(self, now: float) -> list[ServerEffect]:
        """Gives seats to volunteers that wait for one, and sends parts to those that need them, if anything has
        changed."""
        if not self._may_fill or self._coordinator.is_over:
            return []
        self._may_fill = False
        for crew in self._crews:
            for place, holder in enumerate(crew.sitters):
                if holder is None and (spare := self._spare_for(crew, place)) is not None:
                    crew.seat(spare, place)
        while spares := self._spares:
            draft = self._planner.draft([sitter.volunteer.memory_bytes for sitter in spares])
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
        for sitter in self._sitters.values():
            crew = sitter.crew
            if crew is None or not sitter.needs_part or sitter.line is SeatState.SYNCING:
                continue
            if sitter.line is SeatState.ACTIVE:
                effects.append(Send(sitter.peer, Resync("it takes another seat")))
            seat = crew.message(sitter.place, wire=self._planner.wire)
            block = send_block(sitter.volunteer, self._coordinator.block)
            effects += [Send(sitter.peer, seat), *block, SendPart(sitter.peer, sitter.tensors)]
            sitter.line, sitter.needs_part, sitter.sent_at = SeatState.SYNCING, False, self._step
            sitter.loading_since = now
            sitter.due = now + sitter.patience_s + message_limit_s(crew.places[sitter.place].need_bytes)
            sitter.due += 0.0 if sitter.has_loaded else LOADING_LIMIT_S
        return effects

    @property
    def _spares(self) -> list[SeatHolder]:
        spares = [sitter for sitter in self._sitters.values() if sitter.is_spare]
        return sorted(spares, key=lambda sitter: sitter.stalled_at)

    def _spare_for(self, crew: Crew, place: int) -> SeatHolder | None:
        able = (s for s in self._spares if self._planner.fits(crew.places[place], s.volunteer.memory_bytes))
        return next(able, None)

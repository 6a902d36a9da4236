"""The server's side of a run as a pure machine: events and the time in, effects out."""

import math
from collections.abc import Mapping, Sequence
from typing import final

from msgspec.structs import replace

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.audits.auditor import Auditor, Lottery
from fedlearn.coordination.audits.inspecting import claims_to_check
from fedlearn.coordination.audits.tolerance import tolerances_of
from fedlearn.coordination.crews.crew_plan import PlansCrews, Tensors
from fedlearn.coordination.crews.crews import Crews
from fedlearn.coordination.effects import (
    Dismiss,
    EndRun,
    Joined,
    Notice,
    Peer,
    Recompute,
    SaveCheckpoint,
    Send,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.leases.leasing import send_block
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.credit import Earned, Ledger
from fedlearn.coordination.people.membership import Membership
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Party, Phase, Roster, Volunteer
from fedlearn.coordination.people.telling import news_of, settle_credit, settle_last_credit
from fedlearn.coordination.status import RunStatus, run_status
from fedlearn.coordination.steps.divergence import PATIENCE
from fedlearn.coordination.steps.plan import RunPlan, Status
from fedlearn.coordination.steps.step_loop import StepLoop
from fedlearn.coordination.steps.step_source import StepSource
from fedlearn.es.sums.moments import NO_MOMENTS
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.wire.messages import (
    Activations,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Proof,
    Ready,
    Result,
    Resync,
    Taken,
    Unreachable,
    Welcome,
)

LAGS = "its line is slower than the steps; it goes on from the weights of today"


@final
class Coordinator:
    """Coordinates one run from `step` on; `last` is the Update before it, `digest` the replica's at `step`.

    `reputations` and `earned` are the reputations and the credit of identities from before. `lottery` draws the audits:
    its seed is the server's secret. Without a lottery nothing is audited.
    """

    def __init__(
        self,
        plan: RunPlan,
        steps: StepSource,
        *,
        step: int,
        last: Update | None,
        digest: bytes,
        now: float,
        reputations: Sequence[Reputation] = (),
        earned: Mapping[str, Earned] | None = None,
        lottery: Lottery | None = None,
        rules: AuthenticationRules | None = None,
        planner: PlansCrews | None = None,
        is_direct: bool = False,
    ) -> None:
        """`planner` plans crews of volunteers that can't hold a whole replica, whose seats send to each other if they
        consent and `is_direct`; without a planner these wait."""
        self._ledger = Ledger(step, now, work_per_member=plan.work_per_member, before=earned)
        tolerances = tolerances_of(plan.invitation)
        self._auditor = Auditor(plan.audit, self._ledger, lottery=lottery, tolerances=tolerances)
        self._plan = plan
        self._people = Membership(Welcome(plan.run, plan.invitation), rules or AuthenticationRules(), reputations)
        self._steps = steps
        self._digest = digest
        self.roster: Roster = self._people.roster
        """All volunteers and crews."""
        self._volunteers = self.roster.volunteers
        self.crews = None
        if planner is not None:
            self.crews = Crews(planner, self._people, plan.layout, seed=plan.invitation.seed, is_direct=is_direct)
        self.loop = StepLoop(
            steps,
            self.roster,
            step=step,
            last=last,
            time_per_step=plan.time_per_step,
            auditor=self._auditor,
            ledger=self._ledger,
            most=plan.max_share,
        )
        self._held: list[tuple[Party, Result]] = []
        self._checkpoint_due = now + plan.checkpoint_time
        self._stop_reason: str | None = None

    # ---- events

    def connected(
        self, peer: Peer, now: float, *, nonce: bytes, address: str = "", binding: bytes = b""
    ) -> list[ServerEffect]:
        """Takes a new connection; it is not authenticated until it has proven its identity over the random `nonce`."""
        return self._people.connected(peer, now, nonce=nonce, address=address, binding=binding)

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        """Takes note that a connection ended; results of its volunteer that were counted stay counted."""
        volunteer = self._people.disconnected(peer)
        if volunteer is None or self.loop.is_over:
            return []
        return self._settle(self._people.forget(volunteer, reason), now)

    def received(self, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        """Takes a message that its connection found legal."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or self.loop.is_over:
            return []
        match message:
            case Hello():
                return self._people.greet(volunteer, message, now)
            case Proof():
                effects = self._people.let_in(volunteer, message, now)
                if volunteer.phase is not Phase.WAITING:
                    return effects
                if problem := self._plan.refusal(volunteer.memory_bytes):  # in place of a welcome
                    return self._settle(self._people.dismiss(volunteer, Farewell("refused", problem)), now)
                volunteer.is_seated = self.crews is not None and self._plan.is_seated(volunteer.memory_bytes)
                return self._settle([*effects, *self._synchronise(volunteer, now)], now)
            case Ready() | Result() | Activations() | Taken() | Unreachable() if volunteer.is_seated:
                assert self.crews is not None, "a seat without crews"
                return self._settle(self.crews.received(volunteer, message, now), now)
            case Ready():
                return self._admit(volunteer, message, now)
            case Result():
                if volunteer.lease is not None and message.step == self.loop.step:
                    lease, busy_s = volunteer.lease, message.busy_s
                    n_members, passed_s = lease.n_received + message.losses.size, now - lease.leased_at
                    volunteer.time_exchange(n_members, passed_s, busy_s, n_machines=message.n_machines)
                return self._take(volunteer, message, now)
            case Goodbye():
                return self._settle(self._people.forget(volunteer, message.reason), now)
            case _:
                return []

    def _settle(self, effects: list[ServerEffect], now: float) -> list[ServerEffect]:
        """Does what follows from an event, after its effects: for crews, and for the step that it may complete."""
        crews = self.crews
        if crews is None:
            return [*effects, *self.loop.close_if_complete(now)]
        for volunteer, reason in self._people.take_gone():
            effects += crews.left(volunteer, reason, now)
        for crew, result in crews.take_proven():
            lease, proven = crew.lease, replace(result, digest=self._digest, variance_left=None, moments=NO_MOMENTS)
            effects += self._take(crew, proven, now)
            if crew.lease is lease:
                effects += crew.hand_up(result)
        effects += [*self.loop.close_if_complete(now), *self.loop.open_next(now)]
        return [*effects, *self._fill_seats(now)]

    def _fill_seats(self, now: float) -> list[ServerEffect]:
        if self.crews is None or self.loop.is_over:
            return []
        step, is_applying = self.loop.step, self.loop.closed is not None
        return self.crews.fill(now, step=step, block=self._steps.block_of(step), is_applying=is_applying)

    def applied(self, digest: bytes, now: float) -> list[ServerEffect]:
        """Takes the digest of the server's replica after the last Update; every volunteer's replica must have the
        same."""
        closed, self.loop.closed = self.loop.closed, None
        assert closed is not None, "applied without an Update under way"
        self._digest = digest
        if self.crews is not None:
            self.crews.applied()
        # Parts are sent and digested as they are before the next step is taken.
        effects: list[ServerEffect] = [*self._fill_seats(now), closed.report]
        if reason := self._stop_reason or self.loop.completion or closed.problem:
            return [*effects, *self._end(reason + self._whose_lies(is_diverged=reason == closed.problem))]
        news = news_of(self._plan, self.status(now), closed.report.loss)
        effects += settle_credit(self._volunteers.values(), self._ledger, self.loop.step, now, news)
        if now >= self._checkpoint_due:
            self._checkpoint_due = now + self._plan.checkpoint_time
            effects.append(SaveCheckpoint())
        for volunteer in list(self._volunteers.values()):
            if volunteer.phase is Phase.WAITING and not volunteer.is_seated:
                effects += self._synchronise(volunteer, now)
        held, self._held = self._held, []
        for party, result in held:
            effects += self._take(party, result, now)
        return self._settle(effects, now)

    def digested(self, step: int, digests: Mapping[Tensors, bytes], now: float) -> list[ServerEffect]:
        """Takes the digests of parts of the server's replica before a step."""
        assert self.crews is not None, "parts without crews"
        return [] if self.loop.is_over else self._settle(self.crews.digested(step, digests, now), now)

    def allow(self, allowed: frozenset[str] | None, now: float) -> list[ServerEffect]:
        """Takes the owner's new list of identities that may take part; None: everybody may."""
        return self._settle(self._people.allow(allowed), now)

    def send_away(self, who: str, now: float) -> list[ServerEffect]:
        """Parts with a volunteer for good, as `Membership.send_away` does, with the same errors."""
        return self._settle(self._people.send_away(who), now)

    def replan(self, plan: RunPlan, now: float) -> None:
        """Changes the run's times, its end and its share of audits from now on."""
        self._plan = plan
        self._auditor.plan(plan.audit)
        self.loop.pace.plan(plan.time_per_step)
        self._checkpoint_due = min(self._checkpoint_due, now + plan.checkpoint_time)

    def tick(self, now: float) -> list[ServerEffect]:
        """Advances the time: closes a step whose time is up, and a run that was complete when it was resumed."""
        effects = self._people.turn_out(now)
        if self.crews is not None and not self.loop.is_over:
            effects = self._settle([*effects, *self.crews.tick(now)], now)
        if self.loop.completion and self.loop.closed is None and not self.loop.is_over:
            return [*effects, *self._end(self.loop.completion)]
        return [*effects, *self.loop.tick(now)]

    def stop(self, reason: str) -> list[ServerEffect]:
        """Ends the run as soon as the Update under way is applied; the open step is given up."""
        if self.loop.is_over:
            return []
        self._stop_reason = reason
        return [] if self.loop.closed is not None else self._end(reason)

    def status(self, now: float) -> Status:
        """The state of the run, for people and pages."""
        ready = sum(len(party.volunteers) for party in self.roster.ready)
        run_left_s = math.inf
        if self._plan.duration_s > 0.0:
            run_left_s = max(self._plan.duration_s - elapsed_s_after(self.loop.last), 0.0)
        step_left_s = self.loop.step_left_s(now)
        return Status(step=self.loop.step, volunteers=ready, step_left_s=step_left_s, run_left_s=run_left_s)

    def run_status(self, now: float) -> RunStatus:
        """The state of the run with its volunteers, for viewers."""
        return run_status(
            self._plan,
            self.status(now),
            self.roster,
            self.loop.open,
            self._ledger,
            members_per_s=self.loop.members_per_s,
            paused_by=self._steps.paused_by,
        )

    # ---- volunteers come and go

    def _synchronise(self, volunteer: Volunteer, now: float) -> list[ServerEffect]:
        """Sends the weights, or leaves the volunteer waiting, for a seat or while the server's own replica is between
        two steps."""
        if volunteer.is_seated and self.crews is not None:
            return self.crews.wait_for_part(volunteer, now)
        if self.loop.closed is not None:
            return []
        is_first, volunteer.snapshot = volunteer.snapshot is None, (self.loop.step, self._digest)
        volunteer.enter(Phase.SYNCING)
        held = volunteer.held if is_first else None
        block = send_block(volunteer, self._steps.block_of(self.loop.step))
        return [*block, SendWeights(volunteer.peer, is_first, held)]

    def _admit(self, volunteer: Volunteer, ready: Ready, now: float) -> list[ServerEffect]:
        if (ready.step, ready.digest) != volunteer.snapshot:
            what = f"its digest of step {ready.step} is not the server's"
            if ready.step == 0 and not volunteer.has_joined:
                what = "its first weights are not the server's, as where a task's file draws them without a seed"
            return self._quarantine(volunteer, what, now)
        volunteer.enter(Phase.READY)
        effects: list[ServerEffect] = []
        if not volunteer.has_joined:
            volunteer.has_joined = True
            effects.append(Joined(volunteer.name, is_local=volunteer.reputation.is_local))
        return [*effects, *self.loop.open_next(now)]

    def fell_behind(self, peer: Peer, now: float, why: str = LAGS) -> list[ServerEffect]:
        """Sends a peer the weights instead of the Updates that wait for it, which are longer by now."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or volunteer.phase is not Phase.READY or self.loop.is_over:
            return []
        if volunteer.lease is not None:
            volunteer.lease.end()
            volunteer.lease = None
        volunteer.enter(Phase.WAITING)
        resync = Send(peer, Resync(why))
        return self._settle([resync, *self._synchronise(volunteer, now)], now)

    def _quarantine(self, volunteer: Volunteer, what: str, now: float) -> list[ServerEffect]:
        effects = self._people.quarantine(volunteer, what)
        return [*effects, *self._synchronise(volunteer, now)] if volunteer.phase is Phase.WAITING else effects

    # ---- a step, from its Assignments to its Update

    def _take(self, party: Party, result: Result, now: float) -> list[ServerEffect]:
        """Counts a Result, unless it is late, of a drifted replica, or not what was leased."""
        lease, step = party.lease, self.loop.open
        if not party.is_ready or lease is None or step is None or result.step != self.loop.step:
            return []
        if result.first_member < step.first_member:
            return []  # of a population that was given up
        if party.cut_at == result.step and result.first_member != lease.first_member + lease.n_received:
            return []  # of a lease that was taken from it
        if self.loop.closed is not None:
            # The server's own replica is still taking the last step: its digest is not known yet.
            self._held.append((party, result))
            return []
        effects: list[ServerEffect] = []
        if result.digest != self._digest:
            what = f"its digest of step {self.loop.step} is not the server's"
            effects = [effect for v in party.volunteers for effect in self._quarantine(v, what, now)]
            return [*effects, *self.loop.close_if_complete(now)]
        problem = lease.take(
            result.first_member,
            result.losses,
            result.estimate,
            step.population.group_size,
            variance_left=result.variance_left,
            moments=result.moments,
        )
        if problem:
            farewell = Farewell("refused", problem)
            effects = [effect for v in party.volunteers for effect in self._people.dismiss(v, farewell)]
            return [*effects, *self.loop.close_if_complete(now)]
        for volunteer in party.volunteers:
            if volunteer.snapshot is not None and result.step > volunteer.snapshot[0]:
                volunteer.n_resyncs = 0
        party.reputation.n_idle = 0
        if lease.is_done:
            party.measure(lease.n_finite, now - lease.leased_at)
            party.reputation.was_in_time()
        lease.duration_s = now - lease.leased_at
        step.took(now)
        claims = claims_to_check(party, lease, step, result, self._auditor)
        return [*map(Recompute, claims), *self.loop.close_if_complete(now)]

    # ---- steps that somebody else closes

    def moved(self, step: int, digest: bytes, now: float) -> list[ServerEffect]:
        """Takes note that the replica has weights that no step made: they are sent to all volunteers that follow it."""
        self.loop.abandon()
        self.loop.step, self._digest = step, digest
        effects: list[ServerEffect] = []
        for peer, volunteer in list(self._volunteers.items()):
            if volunteer.phase is Phase.SYNCING:
                volunteer.snapshot = (-1, b"")  # whatever it is Ready with are other weights
            effects += self.fell_behind(peer, now, "the weights were replaced")
        return effects

    # ---- audits

    def recomputed(self, claim: Claim, finding: Finding, verdict: Verdict, now: float) -> list[ServerEffect]:
        """Takes the outcome of a claim whose trials the server computed itself."""
        if self.loop.is_over:
            return []
        finding, verdict = self._auditor.settle(claim, finding, verdict)
        effects: list[ServerEffect] = []
        if finding is Finding.FALSE:
            claim.lease.void()
            effects += self._people.punish(claim.reputation.blamed(verdict.place), verdict)
        else:
            claim.lease.release()
        if finding is Finding.UNDECIDABLE:
            effects.append(Notice("audits are off: losses of this task differ when they are computed again"))
        return self._settle(effects, now)

    # ---- the end

    def _whose_lies(self, *, is_diverged: bool) -> str:
        """A clause that names those whose false results may have made the run diverge, for the reason of its end; else
        empty."""
        names = self._auditor.false_since(self.loop.step - 2 * PATIENCE) if is_diverged else []
        return f"; false results came from {', '.join(names)}" if names else ""

    def _end(self, reason: str) -> list[ServerEffect]:
        self.loop.end()
        # A stopped run may be resumed: its volunteers look for it again.
        farewell = Farewell("run_ended" if self.loop.completion else "try_again", reason)
        parting: list[ServerEffect] = [Dismiss(peer, farewell) for peer, v in self._volunteers.items() if v.name]
        credit = settle_last_credit(self._volunteers.values(), self._ledger, self.loop.step)
        return [*credit, SaveCheckpoint(), *parting, EndRun(reason)]

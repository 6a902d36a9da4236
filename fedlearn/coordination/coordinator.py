"""The server's side of a run as a pure machine: events and the time in, effects out."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import final

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.audits.auditor import Auditor, Lottery
from fedlearn.coordination.audits.tolerance import tolerances_of
from fedlearn.coordination.effects import (
    Dismiss,
    EndRun,
    Joined,
    NeedsSeat,
    Notice,
    Peer,
    Recompute,
    SaveCheckpoint,
    Send,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.leasing import send_block
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.credit import Earned, Ledger
from fedlearn.coordination.people.membership import Membership
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.people.telling import news_of, settle_credit, settle_last_credit
from fedlearn.coordination.plan import RunPlan, Status
from fedlearn.coordination.status import RunStatus, run_status
from fedlearn.coordination.steps.closing import ClosedStep
from fedlearn.coordination.steps.divergence import PATIENCE
from fedlearn.coordination.steps.step_loop import StepLoop
from fedlearn.coordination.steps.step_source import StepSource
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Message, Proof, Ready, Result, Resync, Welcome

LAGS = "its line is slower than the steps; it goes on from the weights of today"


@final
class Coordinator:
    """Coordinates one run from `step` on; `last` is the Update before it, `digest` the replica's at `step`.

    `standings` and `earned` are the reputations and the credit of identities from before. `lottery` draws the audits:
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
        standings: Sequence[Reputation] = (),
        earned: Mapping[str, Earned] | None = None,
        lottery: Lottery | None = None,
        rules: AuthenticationRules | None = None,
    ) -> None:
        self._ledger = Ledger(step, now, work_per_member=plan.work_per_member, before=earned)
        tolerances = tolerances_of(plan.invitation)
        self._auditor = Auditor(plan.audit, self._ledger, lottery=lottery, tolerances=tolerances)
        self._plan = plan
        self._entrance = Membership(Welcome(plan.run, plan.invitation), rules or AuthenticationRules(), standings)
        self._steps = steps
        self._digest = digest
        self._volunteers = self._entrance.volunteers
        self._loop = StepLoop(
            steps,
            self._volunteers,
            step=step,
            last=last,
            time_per_step=plan.time_per_step,
            auditor=self._auditor,
            ledger=self._ledger,
            most=plan.max_share,
        )
        self._held: list[tuple[Peer, Result]] = []
        self._checkpoint_due = now + plan.checkpoint_time
        self._stop_reason: str | None = None

    # ---- events

    def connected(
        self, peer: Peer, now: float, *, nonce: bytes, address: str = "", binding: bytes = b""
    ) -> list[ServerEffect]:
        """Takes a new connection; it is not authenticated until it has proven its identity over the random `nonce`."""
        return self._entrance.connected(peer, now, nonce=nonce, address=address, binding=binding)

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        """Takes note that a connection ended; results of its volunteer that were counted stay counted."""
        volunteer = self._entrance.disconnected(peer)
        if volunteer is None or self._loop.is_over:
            return []
        return [*self._entrance.forget(volunteer, reason), *self._loop.close_if_complete(now)]

    def received(self, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        """Takes a message that its connection found legal."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or self._loop.is_over:
            return []
        match message:
            case Hello():
                return self._entrance.greet(volunteer, message, now)
            case Proof():
                effects = self._entrance.let_in(volunteer, message, now)
                return [*effects, *self._synchronise(volunteer)] if volunteer.phase is Phase.WAITING else effects
            case Ready():
                return self._admit(volunteer, message, now)
            case Result():
                if volunteer.lease is not None and message.step == self._loop.step:
                    lease, busy_s = volunteer.lease, message.busy_s
                    n_members, passed_s = lease.n_received + message.losses.size, now - lease.leased_at
                    volunteer.time_exchange(n_members, passed_s, busy_s, n_machines=message.n_machines)
                return self._take(volunteer, message, now)
            case Goodbye():
                return [*self._entrance.forget(volunteer, message.reason), *self._loop.close_if_complete(now)]
            case _:
                return []

    def applied(self, digest: bytes, now: float) -> list[ServerEffect]:
        """Takes the digest of the server's replica after the last Update; every volunteer's replica must have the
        same."""
        closed, self._loop.closed = self._loop.closed, None
        assert closed is not None, "applied without an Update under way"
        self._digest = digest
        effects: list[ServerEffect] = [closed.report]
        if reason := self._stop_reason or self._loop.completion or closed.problem:
            return [*effects, *self._end(reason + self._whose_lies(is_diverged=reason == closed.problem))]
        news = news_of(self._plan, self.status(now), closed.report.loss)
        effects += settle_credit(self._volunteers.values(), self._ledger, self._loop.step, now, news)
        if now >= self._checkpoint_due:
            self._checkpoint_due = now + self._plan.checkpoint_time
            effects.append(SaveCheckpoint())
        for volunteer in self._volunteers.values():
            if volunteer.phase is Phase.WAITING:
                effects += self._synchronise(volunteer)
        held, self._held = self._held, []
        for peer, result in held:
            if peer in self._volunteers:
                effects += self._take(self._volunteers[peer], result, now)
        return [*effects, *self._loop.close_if_complete(now)]

    def allow(self, allowed: frozenset[str] | None, now: float) -> list[ServerEffect]:
        """Takes the owner's new list of identities that may take part; None: everybody may."""
        return [*self._entrance.allow(allowed), *self._loop.close_if_complete(now)]

    def send_away(self, who: str, now: float) -> list[ServerEffect]:
        """Parts with a volunteer for good, as `Membership.send_away` does, with the same errors."""
        return [*self._entrance.send_away(who), *self._loop.close_if_complete(now)]

    def replan(self, plan: RunPlan, now: float) -> None:
        """Changes the run's times, its end and its share of audits from now on."""
        self._plan = plan
        self._auditor.plan(plan.audit)
        self._loop.pace.plan(plan.time_per_step)
        self._checkpoint_due = min(self._checkpoint_due, now + plan.checkpoint_time)

    def tick(self, now: float) -> list[ServerEffect]:
        """Advances the time: closes a step whose time is up, and a run that was complete when it was resumed."""
        effects = self._entrance.turn_out(now)
        if self._loop.completion and self._loop.closed is None and not self._loop.is_over:
            return [*effects, *self._end(self._loop.completion)]
        return [*effects, *self._loop.tick(now)]

    def stop(self, reason: str) -> list[ServerEffect]:
        """Ends the run as soon as the Update under way is applied; the open step is given up."""
        if self._loop.is_over:
            return []
        self._stop_reason = reason
        return [] if self._loop.closed is not None else self._end(reason)

    def status(self, now: float) -> Status:
        """The state of the run, for people and pages."""
        ready = sum(len(v.seats) or 1 for v in self._volunteers.values() if v.phase is Phase.READY)
        run_left_s = math.inf
        if self._plan.duration_s > 0.0:
            run_left_s = max(self._plan.duration_s - elapsed_s_after(self._loop.last), 0.0)
        step_left_s = self._loop.step_left_s(now)
        return Status(step=self._loop.step, volunteers=ready, step_left_s=step_left_s, run_left_s=run_left_s)

    def run_status(self, now: float) -> RunStatus:
        """The state of the run with its volunteers, for viewers."""
        return run_status(
            self._plan,
            self.status(now),
            self._volunteers.values(),
            self._loop.open,
            self._ledger,
            members_per_s=self._loop.members_per_s,
            paused_by=self._steps.paused_by,
        )

    @property
    def has_open_step(self) -> bool:
        """Whether volunteers work on a step, which its Update will end."""
        return self._loop.open is not None

    @property
    def is_between_steps(self) -> bool:
        """Whether no step is open, and the replica has taken the last one."""
        return not self.has_open_step and self._loop.closed is None

    # ---- volunteers come and go

    def _synchronise(self, volunteer: Volunteer) -> list[ServerEffect]:
        """Sends the weights, or leaves the volunteer waiting while the server's own replica is between two steps."""
        if problem := self._plan.refusal(volunteer.memory_bytes):
            return self._entrance.dismiss(volunteer, Farewell("refused", problem))
        if self._plan.is_seated(volunteer.memory_bytes) and not volunteer.seats:
            volunteer.phase = Phase.SEATED
            return [NeedsSeat(volunteer.peer)]
        if self._loop.closed is not None:
            return []
        is_first, volunteer.snapshot = volunteer.snapshot is None, (self._loop.step, self._digest)
        volunteer.phase = Phase.SYNCING
        held = volunteer.held if is_first else None
        block = send_block(volunteer, self._steps.block_of(self._loop.step))
        return [*block, SendWeights(volunteer.peer, is_first, held)]

    def _admit(self, volunteer: Volunteer, ready: Ready, now: float) -> list[ServerEffect]:
        if (ready.step, ready.digest) != volunteer.snapshot:
            return self._quarantine(volunteer, f"its digest of step {ready.step} is not the server's")
        volunteer.phase = Phase.READY
        effects: list[ServerEffect] = []
        if not volunteer.has_joined:
            volunteer.has_joined = True
            effects.append(Joined(volunteer.name))
        return [*effects, *self._loop.open_next(now)]

    def fell_behind(self, peer: Peer, now: float, why: str = LAGS) -> list[ServerEffect]:
        """Sends a peer the weights instead of the Updates that wait for it, which are longer by now."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or volunteer.phase not in (Phase.READY, Phase.SEATED) or self._loop.is_over:
            return []
        if volunteer.lease is not None:
            volunteer.lease.end()
            volunteer.lease = None
        volunteer.phase = Phase.WAITING
        resync = Send(peer, Resync(why))
        return [resync, *self._synchronise(volunteer), *self._loop.close_if_complete(now)]

    def _quarantine(self, volunteer: Volunteer, what: str) -> list[ServerEffect]:
        effects = self._entrance.quarantine(volunteer, what)
        return [*effects, *self._synchronise(volunteer)] if volunteer.phase is Phase.WAITING else effects

    # ---- crews, which are volunteers like any other from here

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens in the run."""
        return self._loop.is_over

    @property
    def position(self) -> tuple[int, bytes]:
        """The step that is open or comes next, and the digest of the replica before it, once the last Update is
        applied."""
        return self._loop.step, self._digest

    @property
    def block(self) -> bytes:
        """The block of data of the step that is open or comes next."""
        return self._steps.block_of(self._loop.step)

    def volunteer(self, peer: Peer) -> Volunteer:
        """The volunteer on a connection."""
        return self._volunteers[peer]

    def seated(self, peer: Peer, name: str, seats: Sequence[Volunteer]) -> list[ServerEffect]:
        """Takes volunteers that hold a replica together; they are addressed as one peer."""
        return self._synchronise(self._entrance.adopt(peer, name, seats))

    def drifted(self, peer: Peer, what: str) -> list[ServerEffect]:
        """Takes note that the part of a seat differs from the server's replica."""
        return self._quarantine(self._volunteers[peer], what) if peer in self._volunteers else []

    def refuse(self, peer: Peer, reason: str) -> list[ServerEffect]:
        """Sends away a seat that broke the protocol."""
        volunteer = self._volunteers.get(peer)
        return self._entrance.dismiss(volunteer, Farewell("refused", reason)) if volunteer is not None else []

    # ---- a step, from its Assignments to its Update

    def _take(self, volunteer: Volunteer, result: Result, now: float) -> list[ServerEffect]:
        """Counts a Result, unless it is late, of a drifted replica, or not what was leased."""
        lease, step = volunteer.lease, self._loop.open
        if volunteer.phase is not Phase.READY or lease is None or step is None or result.step != self._loop.step:
            return []
        if result.first_member < step.first_member:
            return []  # of a population that was given up
        if volunteer.cut_at == result.step and result.first_member != lease.first_member + lease.n_received:
            return []  # of a lease that was taken from it
        if self._loop.closed is not None:
            # The server's own replica is still taking the last step: its digest is not known yet.
            self._held.append((volunteer.peer, result))
            return []
        if result.digest != self._digest:
            effects = self._quarantine(volunteer, f"its digest of step {self._loop.step} is not the server's")
            return [*effects, *self._loop.close_if_complete(now)]
        problem = lease.take(
            result.first_member,
            result.losses,
            result.estimate,
            step.population.group_size,
            variance_left=result.variance_left,
        )
        if problem:
            effects = self._entrance.dismiss(volunteer, Farewell("refused", problem))
            return [*effects, *self._loop.close_if_complete(now)]
        if volunteer.snapshot is not None and result.step > volunteer.snapshot[0]:
            volunteer.n_resyncs = 0
        volunteer.standing.n_idle = 0
        if lease.is_done:
            volunteer.measure(lease.n_finite, now - lease.leased_at)
            volunteer.standing.was_in_time()
        lease.duration_s = now - lease.leased_at
        step.took(now)
        return [*self._audit(volunteer, lease, step, result), *self._loop.close_if_complete(now)]

    # ---- steps that somebody else closes

    @property
    def volunteers(self) -> Collection[Volunteer]:
        """All connected volunteers."""
        return self._volunteers.values()

    def assigned(self, now: float) -> list[ServerEffect]:
        """Opens a step if that is possible now."""
        return self._loop.open_next(now)

    def lease_again(self, volunteer: Volunteer, first_member: int, quota: int, now: float) -> list[ServerEffect]:
        """Asks a volunteer for members of the open step that nobody leases any more."""
        return self._loop.lease_again(volunteer, first_member, quota, now)

    def close(self, closed: ClosedStep, now: float) -> list[ServerEffect]:
        """Ends the open step with this outcome."""
        return self._loop.close(closed, now)

    def abandon(self) -> None:
        """Gives up the open step: further results of it are not taken."""
        self._loop.abandon()

    def moved(self, step: int, digest: bytes, now: float) -> list[ServerEffect]:
        """Takes note that the replica has weights that no step made: they are sent to all volunteers that follow it."""
        self.abandon()
        self._loop.step, self._digest = step, digest
        effects: list[ServerEffect] = []
        for peer, volunteer in list(self._volunteers.items()):
            if volunteer.phase is Phase.SYNCING:
                volunteer.snapshot = (-1, b"")  # whatever it is Ready with are other weights
            effects += self.fell_behind(peer, now, "the weights were replaced")
        return effects

    # ---- audits

    def _audit(self, volunteer: Volunteer, lease: Lease, step: OpenStep, result: Result) -> list[ServerEffect]:
        """Has some of a Result computed again, by lot, and compares it with others' results of the same members."""
        disputed = [claim for overlap in lease.overlaps for claim in self._auditor.compare(overlap, step, step.block)]
        if lease.is_copy:
            return [Recompute(claim) for claim in disputed]
        trials = step.trials(result.first_member, result.losses.size)
        claim = Claim(volunteer.standing, trials, step.block, result.losses, result.estimate, lease)
        return [Recompute(drawn) for drawn in (*disputed, *self._auditor.draw(claim))]

    def recomputed(self, claim: Claim, finding: Finding, verdict: Verdict, now: float) -> list[ServerEffect]:
        """Takes the outcome of a claim whose trials the server computed itself."""
        if self._loop.is_over:
            return []
        finding, verdict = self._auditor.settle(claim, finding, verdict)
        effects: list[ServerEffect] = []
        if finding is Finding.FALSE:
            claim.lease.void()
            effects += self._entrance.punish(claim.standing.blamed(verdict.place), verdict)
        else:
            claim.lease.release()
        if finding is Finding.UNDECIDABLE:
            effects.append(Notice("audits are off: losses of this task differ when they are computed again"))
        return [*effects, *self._loop.close_if_complete(now)]

    # ---- the end

    def _whose_lies(self, *, is_diverged: bool) -> str:
        """A clause that names those whose false results may have made the run diverge, for the reason of its end; else
        empty."""
        names = self._auditor.false_since(self._loop.step - 2 * PATIENCE) if is_diverged else []
        return f"; false results came from {', '.join(names)}" if names else ""

    def _end(self, reason: str) -> list[ServerEffect]:
        self._loop.end()
        # A stopped run may be resumed: its volunteers look for it again.
        farewell = Farewell("run_ended" if self._loop.completion else "try_again", reason)
        parting: list[ServerEffect] = [Dismiss(peer, farewell) for peer, v in self._volunteers.items() if v.name]
        credit = settle_last_credit(self._volunteers.values(), self._ledger, self._loop.step)
        return [*credit, SaveCheckpoint(), *parting, EndRun(reason)]

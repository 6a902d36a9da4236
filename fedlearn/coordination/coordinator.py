"""The server's side of a run as a pure machine: events and the time in, effects out.

A step is open from its Assignments to its Update. It closes when every lease is complete or time is up; then the
Update is journalled, broadcast together with the next Assignments, and applied to the server's own replica, while the
volunteers already work on the next step.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import final

from fedlearn.coordination.admission import AdmissionRules
from fedlearn.coordination.audit import Claim, Finding, Verdict
from fedlearn.coordination.auditor import Auditor, Lottery
from fedlearn.coordination.closing import ClosedStep, Pace, settle_leases
from fedlearn.coordination.credit import Earned, Ledger
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    Broadcast,
    EndRun,
    Joined,
    Notice,
    Part,
    Peer,
    Recompute,
    SaveCheckpoint,
    Send,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.entrance import Entrance
from fedlearn.coordination.leasing import give, lease_out, send_block
from fedlearn.coordination.open_step import Lease, OpenStep
from fedlearn.coordination.plan import Plan, Status
from fedlearn.coordination.roster import Phase, Volunteer
from fedlearn.coordination.standing import Standing
from fedlearn.coordination.status import RunStatus, run_status
from fedlearn.coordination.steps import Steps
from fedlearn.coordination.telling import news_of, settle_credit, settle_last_credit
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Message, Proof, Ready, Result, Resync, Welcome

LAGS = "its line is slower than the steps; it goes on from the weights of today"


@final
class Coordinator:
    """Coordinates one run from `step` on; `last` is the Update before it, `digest` the replica's at `step`.

    `standings` and `earned` are what identities have shown and done before. `lottery` draws what is audited: its seed
    is the server's secret. Without one nothing is.
    """

    def __init__(
        self,
        plan: Plan,
        steps: Steps,
        *,
        step: int,
        last: Update | None,
        digest: bytes,
        now: float,
        standings: Sequence[Standing] = (),
        earned: Mapping[str, Earned] | None = None,
        lottery: Lottery | None = None,
        rules: AdmissionRules | None = None,
    ) -> None:
        self._ledger = Ledger(step, now, work_per_member=plan.work_per_member, before=earned)
        self._auditor = Auditor(plan.audit, self._ledger, lottery=lottery)
        self._plan = plan
        self._entrance = Entrance(Welcome(plan.run, plan.invitation), rules or AdmissionRules(), standings)
        self._steps = steps
        self._step = step
        self._last = last
        self._digest = digest
        self._volunteers = self._entrance.volunteers
        self._open: OpenStep | None = None
        self._closed: ClosedStep | None = None
        self._held: list[tuple[Peer, Result]] = []
        self._first_member = 0
        self._pace = Pace(plan.time_per_step)
        self._checkpoint_due = now + plan.checkpoint_time
        self._stop_reason: str | None = None
        self._is_over = False

    # ---- events

    def connected(
        self, peer: Peer, now: float, *, nonce: bytes, address: str = "", binding: bytes = b""
    ) -> list[ServerEffect]:
        """A connection was made; it is a stranger until it has proven who it is, with the `nonce`, which is random."""
        return self._entrance.connected(peer, now, nonce=nonce, address=address, binding=binding)

    def disconnected(self, peer: Peer, reason: str, now: float) -> list[ServerEffect]:
        """A connection ended; what was counted of the volunteer's results stays."""
        volunteer = self._entrance.disconnected(peer)
        if volunteer is None or self._is_over:
            return []
        return [*self._entrance.forget(volunteer, reason), *self._close_if_complete(now)]

    def received(self, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        """A message came that its connection found legal."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or self._is_over:
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
                if volunteer.lease is not None and message.step == self._step:
                    volunteer.time_exchange(now - volunteer.lease.leased_at, message.busy_s)
                return self._take(volunteer, message, now)
            case Goodbye():
                return [*self._entrance.forget(volunteer, message.reason), *self._close_if_complete(now)]
            case _:
                return []

    def applied(self, digest: bytes, now: float) -> list[ServerEffect]:
        """The server's replica took the last Update; its digest is what every volunteer must have."""
        closed, self._closed = self._closed, None
        assert closed is not None, "applied without an Update under way"
        self._digest = digest
        effects: list[ServerEffect] = [report := closed.report(digest)]
        if reason := self._stop_reason or self._completion or closed.problem:
            return [*effects, *self._end(reason)]
        news = news_of(self._plan, self.status(now), report.loss)
        effects += settle_credit(self._volunteers.values(), self._ledger, self._step, now, news)
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
        return [*effects, *self._close_if_complete(now)]

    def allow(self, allowed: frozenset[str] | None, now: float) -> list[ServerEffect]:
        """The owner lists other identities than before; None: everybody may take part."""
        return [*self._entrance.allow(allowed), *self._close_if_complete(now)]

    def send_away(self, who: str, now: float) -> list[ServerEffect]:
        """Parts with a volunteer for good, as `Entrance.send_away` does, with the same errors."""
        return [*self._entrance.send_away(who), *self._close_if_complete(now)]

    def replan(self, plan: Plan, now: float) -> None:
        """The run has other times and another end from now on."""
        self._plan = plan
        self._pace.plan(plan.time_per_step)
        self._checkpoint_due = min(self._checkpoint_due, now + plan.checkpoint_time)

    def tick(self, now: float) -> list[ServerEffect]:
        """Time passed: closes a step whose time is up, and a run that was complete when it was resumed."""
        return [*self._entrance.turn_out(now), *self._tick_step(now)]

    def _tick_step(self, now: float) -> list[ServerEffect]:
        if self._completion and self._closed is None and not self._is_over:
            return self._end(self._completion)
        if self._open is None or self._closed is not None or now < self._open.deadline or self._open.awaits_update:
            return []
        self._open.count_a_copy()
        if self._open.n_members > 0:
            return self._close_step(now)
        if self._open.has_results:
            return []  # which wait for a verdict; nobody is asked for others meanwhile
        if not any(v.phase is Phase.READY and v.lease is None for v in self._volunteers.values()):
            return []  # a group of a large model may take longer than anybody thought: its first Result will close it
        # Nobody finished a group, and somebody else is there: ask again, under member numbers that nobody had. Whoever
        # is at work on the old ones will be asked again too, hence more time.
        self._pace.stretch(now - self._open.opened_at)
        self._first_member = self._open.next_member
        self._open = None
        return self._open_step(now)

    def stop(self, reason: str) -> list[ServerEffect]:
        """Ends the run as soon as the Update under way is applied; the open step is given up."""
        if self._is_over:
            return []
        self._stop_reason = reason
        return [] if self._closed is not None else self._end(reason)

    def status(self, now: float) -> Status:
        """Where the run stands, for people and pages."""
        ready = sum(volunteer.phase is Phase.READY for volunteer in self._volunteers.values())
        step_left_s = max(self._open.deadline - now, 0.0) if self._open is not None else 0.0
        run_left_s = self._plan.duration_s - elapsed_s_after(self._last) if self._plan.duration_s > 0.0 else math.inf
        return Status(step=self._step, volunteers=ready, step_left_s=step_left_s, run_left_s=max(run_left_s, 0.0))

    def run_status(self, now: float) -> RunStatus:
        """What viewers are shown of the run."""
        speed = self._last.n_members / self._pace.last_s if self._last is not None and self._pace.last_s else 0.0
        volunteers, by = self._volunteers.values(), self._steps.paused_by
        status = self.status(now)
        return run_status(self._plan, status, volunteers, self._open, self._ledger, members_per_s=speed, paused_by=by)

    @property
    def is_between_steps(self) -> bool:
        """Whether no step is open, and the replica has taken the last one."""
        return self._open is None and self._closed is None

    # ---- volunteers come and go

    def _synchronise(self, volunteer: Volunteer) -> list[ServerEffect]:
        """Sends the weights, or leaves the volunteer waiting while the server's own replica is between two steps."""
        if self._closed is not None:
            return []
        is_first, volunteer.snapshot = volunteer.snapshot is None, (self._step, self._digest)
        volunteer.phase = Phase.SYNCING
        held = volunteer.held if is_first else None
        block = send_block(volunteer, self._steps.block_of(self._step))
        return [*block, SendWeights(volunteer.peer, is_first, held)]

    def _admit(self, volunteer: Volunteer, ready: Ready, now: float) -> list[ServerEffect]:
        if (ready.step, ready.digest) != volunteer.snapshot:
            return self._quarantine(volunteer, f"its digest of step {ready.step} is not the server's")
        volunteer.phase = Phase.READY
        effects: list[ServerEffect] = []
        if not volunteer.has_joined:
            volunteer.has_joined = True
            effects.append(Joined(volunteer.name))
        return [*effects, *self._open_step(now)]

    def fell_behind(self, peer: Peer, now: float, why: str = LAGS) -> list[ServerEffect]:
        """More Updates wait for a peer than weights would take: it is sent those instead."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or volunteer.phase is not Phase.READY or self._is_over:
            return []
        if volunteer.lease is not None:
            volunteer.lease.end()
            volunteer.lease = None
        volunteer.phase = Phase.WAITING
        resync = Send(peer, Resync(why))
        return [resync, *self._synchronise(volunteer), *self._close_if_complete(now)]

    def _quarantine(self, volunteer: Volunteer, what: str) -> list[ServerEffect]:
        effects = self._entrance.quarantine(volunteer, what)
        return [*effects, *self._synchronise(volunteer)] if volunteer.phase is Phase.WAITING else effects

    # ---- a step, from its Assignments to its Update

    def _open_step(self, now: float) -> list[ServerEffect]:
        """Opens the next step, if none is open and anybody is ready for it."""
        if self._open is not None or self._is_over or self._completion:
            return []
        ready = [v for v in self._volunteers.values() if v.phase is Phase.READY]
        if not ready:
            return []
        step = self._steps.open(
            self._step, self._last, ready, pace=self._pace, first_member=self._first_member, now=now
        )
        if step is None:
            return []
        self._open = step
        return lease_out(step, ready, self._auditor, last_s=self._pace.last_s)

    def _take(self, volunteer: Volunteer, result: Result, now: float) -> list[ServerEffect]:
        """Counts a Result, unless it is late, of a drifted replica, or not what was leased."""
        lease, step = volunteer.lease, self._open
        if volunteer.phase is not Phase.READY or lease is None or step is None or result.step != self._step:
            return []
        if result.first_member < step.first_member:
            return []  # of a population that was given up
        if volunteer.cut_at == result.step and result.first_member != lease.first_member + lease.n_received:
            return []  # of a lease that was taken from it
        if self._closed is not None:
            # The server's own replica is still taking the last step: its digest is not known yet.
            self._held.append((volunteer.peer, result))
            return []
        if result.digest != self._digest:
            effects = self._quarantine(volunteer, f"its digest of step {self._step} is not the server's")
            return [*effects, *self._close_if_complete(now)]
        problem = lease.take(result.first_member, result.losses, result.estimate, step.population.group_size)
        if problem:
            return [*self._entrance.dismiss(volunteer, Farewell("refused", problem)), *self._close_if_complete(now)]
        if volunteer.snapshot is not None and result.step > volunteer.snapshot[0]:
            volunteer.n_resyncs = 0
        volunteer.standing.n_idle = 0
        if lease.is_done:
            volunteer.measure(lease.n_finite, now - lease.leased_at)
            volunteer.standing.was_in_time()
        lease.duration_s = now - lease.leased_at
        step.took(now)
        return [*self._audit(volunteer, lease, step, result), *self._close_if_complete(now)]

    # ---- steps that somebody else closes

    @property
    def volunteers(self) -> Collection[Volunteer]:
        """Everybody who is connected."""
        return self._volunteers.values()

    def assigned(self, now: float) -> list[ServerEffect]:
        """There may be a step to open now."""
        return self._open_step(now)

    def lease_again(self, volunteer: Volunteer, first_member: int, quota: int, now: float) -> list[ServerEffect]:
        """Asks somebody for members of the open step of which nobody else has a lease any more."""
        assert self._open is not None, "leasing without an open step"
        is_held = not self._auditor.trusts(volunteer.standing)
        lease = self._open.lease_again(first_member, quota, volunteer.standing, is_held=is_held, now=now)
        return give(volunteer, lease, self._open)

    def abandon(self) -> None:
        """Gives up the open step: whatever still comes of it is not taken."""
        for volunteer in self._volunteers.values():
            if volunteer.lease is not None:
                volunteer.lease, volunteer.cut_at = None, self._step
        self._open = None

    def moved(self, step: int, digest: bytes, now: float) -> list[ServerEffect]:
        """The replica has other weights now than the steps made: whoever follows it is sent those."""
        self.abandon()
        self._step, self._digest = step, digest
        effects: list[ServerEffect] = []
        for peer, volunteer in list(self._volunteers.items()):
            if volunteer.phase is Phase.SYNCING:
                volunteer.snapshot = (-1, b"")  # whatever it is Ready with are other weights
            effects += self.fell_behind(peer, now, "the weights were replaced")
        return effects

    # ---- audits

    def _audit(self, volunteer: Volunteer, lease: Lease, step: OpenStep, result: Result) -> list[ServerEffect]:
        """Has some of a Result computed again, by lot, and holds it against what others have of the same members."""
        disputed = [claim for overlap in lease.overlaps for claim in self._auditor.compare(overlap, step, step.block)]
        if lease.is_copy:
            return [Recompute(claim) for claim in disputed]
        trials = step.trials(result.first_member, result.losses.size)
        claim = Claim(volunteer.standing, trials, step.block, result.losses, result.estimate, lease)
        return [Recompute(drawn) for drawn in (*disputed, *self._auditor.draw(claim))]

    def recomputed(self, claim: Claim, finding: Finding, verdict: Verdict, now: float) -> list[ServerEffect]:
        """The server ran a claim's trials itself."""
        if self._is_over:
            return []
        self._auditor.settle(claim, finding)
        effects: list[ServerEffect] = []
        if finding is Finding.FALSE:
            claim.lease.void()
            effects += self._entrance.punish(claim.standing, verdict)
        else:
            claim.lease.release()
        if finding is Finding.UNDECIDABLE:
            effects.append(Notice("audits are off: losses of this task differ when they are computed again"))
        return [*effects, *self._close_if_complete(now)]

    # ---- the end of a step

    def _close_if_complete(self, now: float) -> list[ServerEffect]:
        step = self._open
        if step is None or self._closed is not None or step.awaits_update:
            return []
        if not step.is_complete and not (now >= step.deadline and step.n_members > 0):
            return []
        step.count_a_copy()
        if step.n_members > 0:
            return self._close_step(now)
        # All whom it waited for left before the first result; others' may be on their way, under these numbers.
        self._first_member, self._open = step.next_member, None
        return self._open_step(now)

    def _close_step(self, now: float) -> list[ServerEffect]:
        assert self._open is not None, "closing without an open step"
        return self.close(self._steps.close(self._open, now), now)

    def close(self, closed: ClosedStep, now: float) -> list[ServerEffect]:
        """The step is over, and this is what it amounts to."""
        if self._open is not None:
            settle_leases(self._open, self._volunteers.values(), self._ledger, now=now)
            self._pace.closed(closed.duration_s, first_s=self._open.first_result_at - self._open.opened_at)
        self._closed, update = closed, closed.update
        self._last, self._open, self._first_member = update, None, 0
        self._step += 1
        effects: list[ServerEffect] = [AppendToJournal(update)]
        followers = [volunteer for volunteer in self._volunteers.values() if volunteer.follows_updates]
        for volunteer in followers:
            # Whoever joined while the step was open had no Assignment of it, which brings the block.
            effects += send_block(volunteer, update.block)
        effects.append(Broadcast(tuple(volunteer.peer for volunteer in followers), update))
        return [*effects, *self._open_step(now), ApplyUpdate(update)]

    @property
    def _completion(self) -> str:
        return self._steps.completion(self._step, self._last)

    def _end(self, reason: str) -> list[ServerEffect]:
        self._is_over, self._open = True, None
        # A stopped run may be resumed: its volunteers look for it again.
        farewell = Farewell("run_ended" if self._completion else "try_again", reason)
        parting: list[ServerEffect] = [Part(peer, farewell) for peer, v in self._volunteers.items() if v.name]
        credit = settle_last_credit(self._volunteers.values(), self._ledger, self._step)
        return [*credit, SaveCheckpoint(), *parting, EndRun(reason)]

"""The server's side of a run as a pure machine: events and the time in, effects out.

A step is open from its Assignments to its Update. It closes when every lease is complete or time is up; then the
Update is journalled, broadcast together with the next Assignments, and applied to the server's own replica, while the
volunteers already work on the next step.
"""

import math
from collections.abc import Sequence
from typing import final

from fedlearn.coordination.admission import AdmissionRules
from fedlearn.coordination.audit import Claim
from fedlearn.coordination.auditor import Auditor, Finding, Lottery
from fedlearn.coordination.closing import ClosedStep, Pace, close_step, settle_leases
from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    Broadcast,
    EndRun,
    Notice,
    Part,
    Peer,
    Recompute,
    RecordCredit,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendWeights,
    ServerEffect,
    StepReport,
)
from fedlearn.coordination.entrance import Entrance
from fedlearn.coordination.open_step import Lease, OpenStep
from fedlearn.coordination.plan import Plan, Status
from fedlearn.coordination.roster import Phase, Volunteer, share_step
from fedlearn.coordination.standing import Standing
from fedlearn.es.clipping import Clipping
from fedlearn.es.strategy import Strategy, ask, sum_shaping
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import (
    Farewell,
    Goodbye,
    Hello,
    Message,
    Proof,
    Ready,
    Result,
    Resync,
    Welcome,
)

MAX_RESYNCS = 3
"""Drifts in a row after which a volunteer is sent away: its arithmetic can't be trusted."""


@final
class Coordinator:
    """Coordinates one run from `step` on; `last` is the Update before it, `digest` the replica's at `step`.

    `standings` are what identities have shown before. `lottery` draws what is audited: its seed is the server's secret.
    Without one nothing is.
    """

    def __init__(
        self,
        plan: Plan,
        strategy: Strategy,
        *,
        step: int,
        last: Update | None,
        digest: bytes,
        now: float,
        standings: Sequence[Standing] = (),
        lottery: Lottery | None = None,
        rules: AdmissionRules | None = None,
    ) -> None:
        self._ledger = Ledger(step, now, work_per_member=plan.work_per_member)
        self._auditor = Auditor(plan.audit, plan.layout, self._ledger, lottery=lottery)
        self._clipping = Clipping()
        self._plan = plan
        self._entrance = Entrance(Welcome(plan.run, plan.invitation), rules or AdmissionRules(), standings)
        self._strategy = strategy
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
                if self._open is not None and message.step == self._step:
                    volunteer.time_exchange(now - self._open.opened_at, message.busy_s)
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
        effects: list[ServerEffect] = [
            StepReport(
                step=closed.update.step,
                loss=closed.loss,
                members=closed.update.n_members,
                duration_s=closed.duration_s,
                volunteers=closed.volunteers,
                digest=digest,
            )
        ]
        if reason := self._stop_reason or self._completion:
            return [*effects, *self._end(reason)]
        if self._ledger.is_due(now):
            effects.append(RecordCredit(self._ledger.entry(self._step - 1)))
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

    def tick(self, now: float) -> list[ServerEffect]:
        """Time passed: closes a step whose time is up, and a run that was complete when it was resumed."""
        return [*self._entrance.turn_out(now), *self._tick_step(now)]

    def _tick_step(self, now: float) -> list[ServerEffect]:
        if self._completion and self._closed is None and not self._is_over:
            return self._end(self._completion)
        if self._open is None or self._closed is not None or now < self._open.deadline:
            return []
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

    # ---- volunteers come and go

    def _synchronise(self, volunteer: Volunteer) -> list[ServerEffect]:
        """Sends the weights, or leaves the volunteer waiting while the server's own replica is between two steps."""
        if self._closed is not None:
            return []
        is_first, volunteer.snapshot = volunteer.snapshot is None, (self._step, self._digest)
        volunteer.phase = Phase.SYNCING
        held = volunteer.held if is_first else None
        return [*self._send_block(volunteer, self._step), SendWeights(volunteer.peer, is_first, held)]

    def _send_block(self, volunteer: Volunteer, step: int) -> list[ServerEffect]:
        """Sends the block of data of a step, unless there is none or the volunteer holds it."""
        block = self._plan.block_of(step)
        if block == NO_BLOCK or block in volunteer.blocks:
            return []
        volunteer.blocks.append(block)
        return [SendBlock(volunteer.peer, block)]

    def _admit(self, volunteer: Volunteer, ready: Ready, now: float) -> list[ServerEffect]:
        if (ready.step, ready.digest) != volunteer.snapshot:
            return self._quarantine(volunteer, f"its digest of step {ready.step} is not the server's")
        volunteer.phase = Phase.READY
        effects: list[ServerEffect] = []
        if not volunteer.has_joined:
            volunteer.has_joined = True
            effects.append(Notice(f"{volunteer.name} joined"))
        return [*effects, *self._open_step(now)]

    def fell_behind(self, peer: Peer, now: float) -> list[ServerEffect]:
        """More Updates wait for a peer than weights would take: it is sent those instead."""
        volunteer = self._volunteers.get(peer)
        if volunteer is None or volunteer.phase is not Phase.READY or self._is_over:
            return []
        if volunteer.lease is not None:
            volunteer.lease.end()
            volunteer.lease = None
        volunteer.phase = Phase.WAITING
        resync = Send(peer, Resync("its line is slower than the steps; it goes on from the weights of today"))
        return [resync, *self._synchronise(volunteer), *self._close_if_complete(now)]

    def _quarantine(self, volunteer: Volunteer, what: str) -> list[ServerEffect]:
        volunteer.n_resyncs += 1
        if volunteer.lease is not None:
            volunteer.lease.void()
            volunteer.lease = None
        if volunteer.n_resyncs > MAX_RESYNCS:
            reason = f"{what}, {volunteer.n_resyncs} times in a row; its arithmetic can't be trusted"
            return self._entrance.dismiss(volunteer, Farewell("refused", reason))
        volunteer.phase = Phase.WAITING
        volunteer.blocks.clear()
        notice = Notice(f"{volunteer.name} drifted: {what}; it is resynchronised and its results do not count")
        return [notice, Send(volunteer.peer, Resync(what)), *self._synchronise(volunteer)]

    # ---- a step, from its Assignments to its Update

    def _open_step(self, now: float) -> list[ServerEffect]:
        """Opens the next step, if none is open and anybody is ready for it."""
        if self._open is not None or self._completion:
            return []
        ready = [v for v in self._volunteers.values() if v.phase is Phase.READY]
        if not ready:
            return []
        members_per_s = sum(v.members_per_s or 0.0 for v in ready)
        least_s = self._pace.least_s(ready)
        population = ask(self._strategy, self._step, self._last, members_per_s=members_per_s, least_s=least_s)
        step = OpenStep(
            population,
            opened_at=now,
            deadline=now + self._pace.time_per_step,
            first_member=self._first_member,
            layout=self._plan.layout,
            shaping=sum_shaping(
                self._strategy, population, self._plan.layout, n_volunteers=len(ready), members_per_s=members_per_s
            ),
        )
        self._open = step
        group_size = step.population.group_size
        effects: list[ServerEffect] = []
        n_groups = step.population.limit // group_size
        expected = self._pace.last_s / group_size  # members, of who does one a second
        for share in share_step(ready, n_groups, step=self._step, trusts=self._auditor.trusts, expected=expected):
            volunteer = share.volunteer
            is_held = not self._auditor.trusts(volunteer.standing)
            quota = share.n_groups * group_size
            volunteer.lease = step.lease(quota, volunteer.standing, gates=share.gates, is_held=is_held)
            effects += self._send_block(volunteer, self._step)
            effects.append(Send(volunteer.peer, step.assignment(volunteer.lease, self._plan.block_of(self._step))))
        return effects

    def _take(self, volunteer: Volunteer, result: Result, now: float) -> list[ServerEffect]:
        """Counts a Result, unless it is late, of a drifted replica, or not what was leased."""
        lease, step = volunteer.lease, self._open
        if volunteer.phase is not Phase.READY or lease is None or step is None or result.step != self._step:
            return []
        if result.first_member < step.first_member:
            return []  # of a population that was given up
        if self._closed is not None:
            # The server's own replica is still taking the last step: its digest is not known yet.
            self._held.append((volunteer.peer, result))
            return []
        if result.digest != self._digest:
            effects = self._quarantine(volunteer, f"its digest of step {self._step} is not the server's")
            return [*effects, *self._close_if_complete(now)]
        is_overdue = now >= step.deadline and not step.has_results
        problem = lease.take(result.first_member, result.losses, result.estimate, step.population.group_size)
        if problem:
            return [*self._entrance.dismiss(volunteer, Farewell("refused", problem)), *self._close_if_complete(now)]
        if volunteer.snapshot is not None and result.step > volunteer.snapshot[0]:
            volunteer.n_resyncs = 0
        volunteer.standing.n_idle = 0
        if lease.is_done:
            volunteer.measure(lease.n_finite, now - step.opened_at)
            volunteer.standing.was_in_time()
        lease.duration_s = now - step.opened_at
        step.is_overdue |= is_overdue
        step.hurry(now)
        return [*self._audit(volunteer, lease, step, result), *self._close_if_complete(now)]

    # ---- audits

    def _audit(self, volunteer: Volunteer, lease: Lease, step: OpenStep, result: Result) -> list[ServerEffect]:
        """Has some of a Result computed again, by lot."""
        trials = Trials(
            step=result.step,
            perturbation=step.population.perturbation,
            group_size=step.population.group_size,
            first_member=result.first_member,
            n_members=result.losses.size,
            shaping=step.shaping,
        )
        block = self._plan.block_of(result.step)
        claim = Claim(volunteer.peer, volunteer.standing, trials, block, result.losses, result.estimate, lease)
        return [Recompute(drawn) for drawn in self._auditor.draw(claim)]

    def recomputed(self, claim: Claim, results: Sequence[TrialResults], now: float) -> list[ServerEffect]:
        """The server ran a claim's trials itself, twice where the first time did not agree with the claim."""
        if self._is_over:
            return []
        finding, verdict = self._auditor.settle(claim, results)
        effects: list[ServerEffect] = []
        match finding:
            case Finding.TRUE:
                claim.lease.release()
            case Finding.FALSE:
                claim.lease.void()
                effects += self._entrance.punish(claim.standing, verdict)
            case Finding.UNDECIDABLE:
                claim.lease.release()
                effects.append(Notice("audits are off: computed again, losses of this task are not the same"))
        return [*effects, *self._close_if_complete(now)]

    # ---- the end of a step

    def _close_if_complete(self, now: float) -> list[ServerEffect]:
        step = self._open
        if step is None or self._closed is not None:
            return []
        if not step.is_complete and not (now >= step.deadline and step.n_members > 0):
            return []
        if step.n_members > 0:
            return self._close_step(now)
        self._open = None  # everybody left before the first result
        return self._open_step(now)

    def _close_step(self, now: float) -> list[ServerEffect]:
        step = self._open
        assert step is not None, "closing without an open step"
        settle_leases(step, self._volunteers.values(), self._ledger, now=now)
        block = self._plan.block_of(self._step)
        self._closed = close_step(step, self._strategy, block, clipping=self._clipping, now=now)
        self._pace.closed(self._closed.duration_s, is_overdue=step.is_overdue)
        update = self._closed.update
        self._last, self._open, self._first_member = update, None, 0
        self._step += 1
        effects: list[ServerEffect] = [AppendToJournal(update)]
        followers = [volunteer for volunteer in self._volunteers.values() if volunteer.follows_updates]
        for volunteer in followers:
            # Whoever joined while the step was open had no Assignment of it, which brings the block.
            effects += self._send_block(volunteer, update.step)
        effects.append(Broadcast(tuple(volunteer.peer for volunteer in followers), update))
        return [*effects, *self._open_step(now), ApplyUpdate(update)]

    @property
    def _completion(self) -> str:
        return self._plan.completion(self._step, elapsed_s_after(self._last))

    def _end(self, reason: str) -> list[ServerEffect]:
        self._is_over, self._open = True, None
        # A stopped run may be resumed: its volunteers look for it again.
        farewell = Farewell("run_ended" if self._completion else "try_again", reason)
        parting: list[ServerEffect] = [Part(peer, farewell) for peer, v in self._volunteers.items() if v.name]
        credit: list[ServerEffect] = []
        if self._ledger.first_step < self._step:
            credit.append(RecordCredit(self._ledger.entry(self._step - 1)))
        return [*credit, SaveCheckpoint(), *parting, EndRun(reason)]

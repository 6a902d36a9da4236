"""The steps of a run, one after another.

A step is open from its Assignments to its Update. It closes when every lease is complete or time is up; then the
Update is journalled, broadcast together with the next Assignments, and applied to the server's own replica, while the
volunteers already work on the next step.
"""

from collections.abc import Sequence
from typing import final

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.effects import AppendToJournal, ApplyUpdate, Broadcast, Notice, ServerEffect
from fedlearn.coordination.leases.leasing import give, lease_out, send_block
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.roster import Party, Roster
from fedlearn.coordination.steps.closing import ClosedStep, StepPace, line_s, settle_leases
from fedlearn.coordination.steps.step_source import StepSource
from fedlearn.es.strategy import Population
from fedlearn.es.update import Update


@final
class StepLoop:
    """Goes on from `step`; `last` is the Update before it. The `roster` changes meanwhile."""

    def __init__(
        self,
        steps: StepSource,
        roster: Roster,
        *,
        step: int,
        last: Update | None,
        time_per_step: float,
        auditor: Auditor,
        ledger: Ledger,
        most: float = 1.0,
    ) -> None:
        self.step = step
        """The number of the step that is open, or is opened next."""
        self.last = last
        """The Update of the step before."""
        self.open: OpenStep | None = None
        self.closed: ClosedStep | None = None
        """The step before, as long as the server's replica has not taken it."""
        self.pace = StepPace(time_per_step)
        self.most = most
        """The largest share of a step that one owner of volunteers is asked for."""
        self.is_over = False
        self._steps = steps
        self._roster = roster
        self._auditor = auditor
        self._ledger = ledger
        self._first_member = 0
        self._n_local_steps, self._sum_bits = 1, 8

    @property
    def completion(self) -> str:
        """Why no step is left to open; empty where there is one."""
        return self._steps.completion(self.step, self.last)

    @property
    def members_per_s(self) -> float:
        """The speed of the last step; 0 before it is known."""
        return self.last.n_members / self.pace.last_s if self.last is not None and self.pace.last_s else 0.0

    def step_left_s(self, now: float) -> float:
        """Seconds until the open step closes; 0 without one."""
        return max(self.open.deadline - now, 0.0) if self.open is not None else 0.0

    @property
    def is_between_steps(self) -> bool:
        """Whether no step is open, and the replica has taken the last one."""
        return not self.has_open_step and self.closed is None

    @property
    def has_open_step(self) -> bool:
        """Whether volunteers work on a step, which its Update will end."""
        return self.open is not None

    def open_next(self, now: float) -> list[ServerEffect]:
        """Opens the next step, if none is open and a party is ready for it."""
        if self.open is not None or self.is_over or self.completion:
            return []
        ready = self._roster.ready
        if not ready:
            return []
        step = self._steps.open(self.step, self.last, ready, pace=self.pace, first_member=self._first_member, now=now)
        if step is None:
            return []
        self.open = step
        return [
            *self._news(step.population, ready),
            *lease_out(step, ready, self._auditor, last_s=self.pace.last_s, most=self.most),
        ]

    def lease_again(self, party: Party, first_member: int, quota: int, now: float) -> list[ServerEffect]:
        """Asks a party for members of the open step that nobody leases any more."""
        assert self.open is not None, "leasing without an open step"
        is_held = not self._auditor.trusts(party.reputation)
        lease = self.open.lease_again(first_member, quota, party.reputation, is_held=is_held, now=now)
        return give(party, lease, self.open)

    def tick(self, now: float) -> list[ServerEffect]:
        """Closes a step whose time is up."""
        step = self.open
        if step is None or self.closed is not None or now < step.deadline or step.awaits_update:
            return []
        step.count_a_copy()
        if step.n_members > 0:
            return self._close(step, now)
        if step.has_results:
            return []  # which wait for a verdict; nobody is asked for others meanwhile
        if not any(party.lease is None for party in self._roster.ready):
            return []  # a group of a large model may take longer than anybody thought: its first Result will close it
        # Nobody finished a group, and somebody else is there: ask again. Whoever is at work on the old ones will be
        # asked again too, hence more time.
        self.pace.stretch(now - step.opened_at)
        return self._ask_anew(step, now)

    def close_if_complete(self, now: float) -> list[ServerEffect]:
        """Closes the step if no more results are expected, or its time is up and it has any."""
        step = self.open
        if step is None or self.closed is not None or step.awaits_update:
            return []
        if not step.is_complete and not (now >= step.deadline and step.n_members > 0):
            return []
        step.count_a_copy()
        if step.n_members > 0:
            return self._close(step, now)
        # All whom it waited for left before the first result; others' may be on their way, under these numbers.
        return self._ask_anew(step, now)

    def close(self, closed: ClosedStep, now: float) -> list[ServerEffect]:
        """Ends the step with this outcome."""
        if self.open is not None:
            settle_leases(self.open, self._roster.parties, self._ledger, now=now)
            self.pace.closed(closed.report.duration_s, first_s=self.open.first_result_at - self.open.opened_at)
        self._auditor.alarm(on=closed.is_alarming)
        self.closed, update = closed, closed.update
        self.last, self.open, self._first_member = update, None, 0
        self.step += 1
        effects: list[ServerEffect] = [AppendToJournal(update)]
        followers = [volunteer for volunteer in self._roster.volunteers.values() if volunteer.follows_updates]
        for volunteer in followers:
            # Whoever joined while the step was open had no Assignment of it, which brings the block.
            effects += send_block(volunteer, update.block)
        effects.append(Broadcast(tuple(volunteer.peer for volunteer in followers), update))
        if closed.news:
            effects.append(Notice(closed.news))
        return [*effects, *self.open_next(now), ApplyUpdate(update)]

    def abandon(self) -> None:
        """Gives up the open step: further results of it are not taken."""
        for party in self._roster.parties:
            if party.lease is not None:
                party.lease, party.cut_at = None, self.step
        self.open = None

    def end(self) -> None:
        """Gives up the open step, and opens none any more."""
        self.is_over, self.open = True, None

    def _close(self, step: OpenStep, now: float) -> list[ServerEffect]:
        return self.close(self._steps.close(step, now), now)

    def _news(self, population: Population, ready: Sequence[Party]) -> list[ServerEffect]:
        """Notices where the number of local steps, or the bits of sums, have changed."""
        n_local, bits = population.n_local_steps, population.perturbation.sum_bits
        if (n_local, bits) == (self._n_local_steps, self._sum_bits):
            return []
        exchange_s = line_s(ready)
        why = f", since an exchange takes {exchange_s:.2g} s" if exchange_s else ""
        news: list[ServerEffect] = []
        if n_local != self._n_local_steps:
            told = f"volunteers take {n_local} steps by themselves between two exchanges"
            news.append(Notice(("each step is exchanged again" if n_local == 1 else told) + why))
        if bits != self._sum_bits:
            news.append(Notice(f"sums of gradients have {bits} bits a parameter{why}"))
        self._n_local_steps, self._sum_bits = n_local, bits
        return news

    def _ask_anew(self, step: OpenStep, now: float) -> list[ServerEffect]:
        """Opens the step again, under member numbers that were never leased."""
        self._first_member, self.open = step.next_member, None
        return self.open_next(now)

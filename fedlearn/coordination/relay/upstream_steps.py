"""Steps of a server above: its lease to this machine is shared among volunteers, and results go up in order."""

import math
from collections.abc import Sequence
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.roster import Party
from fedlearn.coordination.steps.closing import ClosedStep, StepPace, news_of, report_of
from fedlearn.coordination.steps.middle import group_means, middle_mean
from fedlearn.coordination.steps.report import StepReport
from fedlearn.coordination.work.slices import MAX_SLICE_MEMBERS, SLICE_S
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.optimizers import Sgd
from fedlearn.es.strategy import Population
from fedlearn.es.sums.estimate import NO_ESTIMATE, encode_exactly
from fedlearn.es.sums.exchange import SUM_SLICE_S
from fedlearn.es.sums.moments import Int64Array
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment, Result

SHARE_OF_TIME = 0.9
"""Share of the time that the server above leaves: results that come later from below would be too late above."""

GREATEST = 2**31 - 1
"""The greatest integer of a sum on the wire."""


@final
class UpstreamSteps:
    """One lease of the server above at a time; its results go up without gaps."""

    def __init__(self, layout: ParameterLayout) -> None:
        self._layout = layout
        self.paused_by = ""  # the server above may pause: it then leases nothing
        self._assignment: Assignment | None = None
        self._assigned_at = 0.0
        self._handed_at = 0.0
        self._block = NO_BLOCK
        self._means: list[float] = []
        """The mean loss of each group of this step that went up."""
        self.step: OpenStep | None = None
        """The lease's step, once it is open below."""
        self.next_member = 0
        """The member that goes up next."""
        self.digest = b""
        """Digest of the replica."""
        self.reason = ""
        """Why the run has ended; empty while it goes on."""

    def assign(self, assignment: Assignment, now: float) -> None:
        """Takes a lease of the server above."""
        self._assignment, self._assigned_at, self._block = assignment, now, assignment.block
        self.step = None

    def revoke(self) -> None:
        """Drops the lease, which is void."""
        self._assignment = self.step = None

    # ---- what the coordinator of those below asks for

    def completion(self, step: int, last: Update | None) -> str:  # noqa: ARG002
        return self.reason

    def block_of(self, step: int) -> bytes:  # noqa: ARG002
        return self._block

    def open(
        self,
        step: int,
        last: Update | None,  # noqa: ARG002
        ready: Sequence[Party],  # noqa: ARG002
        *,
        pace: StepPace,  # noqa: ARG002
        first_member: int,  # noqa: ARG002
        now: float,
    ) -> OpenStep | None:
        lease = self._assignment
        if lease is None or lease.step != step:
            return None
        # The optimizer and the schedules are the server's alone: these values are never used.
        # Lines below are short, and what bytes lack adds up to less than a tolerance of the server's.
        perturbation = lease.perturbation.in_bytes
        population = Population(step, perturbation, lease.group_size, lease.quota, Sgd(0.0, 0.0), 0.0, 0.0)
        self.step = OpenStep(
            population,
            opened_at=now,
            deadline=max(self.deadline, now),
            first_member=lease.first_member,
            layout=self._layout,
            block=lease.block,
            shaping=lease.shaping,
            awaits_update=True,
        )
        self.next_member, self._handed_at = lease.first_member, now
        self._means = []
        return self.step

    def close(self, step: OpenStep, now: float) -> ClosedStep:
        raise AssertionError(f"step {step.population.step}: its Update is made elsewhere, and not at {now}")

    # ---- what goes up

    @property
    def end(self) -> int:
        """The member behind the lease's last one."""
        lease = self._assignment
        return 0 if lease is None else lease.first_member + lease.quota

    @property
    def deadline(self) -> float:
        """Time by which all results must have come."""
        lease = self._assignment
        return math.inf if lease is None else self._assigned_at + SHARE_OF_TIME * lease.time_left_s

    def closed(self, update: Update, now: float) -> ClosedStep:
        """Ends the step with the Update of the server above, and the figures of the members that went up from here."""
        step, self.step = self.step, None
        if step is None:
            return ClosedStep(update, StepReport(step=update.step, loss=None, members=update.n_members, volunteers=0))
        report = report_of(step, update, middle_mean(self._means), now=now)
        return ClosedStep(update, report, news=news_of(step, update))

    def hand_up(self, now: float, *, exchange_s: float = 0.0, n_machines: int = 1) -> list[Result]:
        """The results that have come without gaps since the last time, if it is time for them.

        Volunteers below, who have `n_machines`, spend `exchange_s` on their lines.
        """
        step = self.step
        slice_s = SUM_SLICE_S if step is not None and step.is_summed else SLICE_S
        if step is None or (not step.is_complete and now < min(self._handed_at + slice_s, step.deadline)):
            return []
        self._handed_at = now
        busy_s = max(now - self._assigned_at - exchange_s, 1e-3)
        found = [self._result(step, leases, busy_s) for leases in self._in_order(step)]
        return [msgspec.structs.replace(result, n_machines=n_machines) for result in found]

    def _in_order(self, step: OpenStep) -> list[list[Lease]]:
        """Leases whose new losses follow each other, joined as far as one Result can hold them."""
        parts: list[list[Lease]] = []
        at, n_members, greatest = self.next_member, 0, 0
        for lease in sorted(step.leases, key=lambda lease: lease.first_member):
            n_new = lease.n_new if lease.n_counted else 0
            if n_new == 0 or lease.first_member + lease.n_received - n_new != at or at >= self.end:
                continue
            its_greatest = 0 if lease.estimate is None else int(np.abs(lease.estimate).max(initial=0))
            if not parts or n_members + n_new > MAX_SLICE_MEMBERS or greatest + its_greatest > GREATEST:
                parts.append([])
                n_members = greatest = 0
            parts[-1].append(lease)
            at, n_members, greatest = at + n_new, n_members + n_new, greatest + its_greatest
        return parts

    def _result(self, step: OpenStep, leases: Sequence[Lease], busy_s: float) -> Result:
        first, losses, total = self.next_member, [], np.zeros(self._layout.size, dtype=np.int64)
        moments: list[Int64Array] = []
        for lease in leases:
            its_losses, estimate, its_moments = lease.hand_over()
            losses.append(its_losses)
            moments.append(its_moments)
            if estimate is not None:
                total += estimate
        everything: Float32Array = np.concatenate(losses)
        self.next_member += everything.size
        self._means += group_means(everything, step.population.group_size).tolist()
        coded = NO_ESTIMATE
        if step.is_summed:
            bounded: NDArray[np.int64] = np.clip(total, -GREATEST, GREATEST)
            coded = encode_exactly(self._layout, bounded)
        return Result(
            step.population.step,
            first,
            everything,
            self.digest,
            coded,
            busy_s,
            step.variance_left,
            moments=np.concatenate(moments),
        )

"""The end of a step: what its leases amount to, what they say of their holders, and how long the next one may be."""

import math
from collections.abc import Iterable, Sequence
from typing import final

import msgspec
import numpy as np

from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.divergence import DivergenceWatch
from fedlearn.coordination.effects import StepReport
from fedlearn.coordination.open_step import OpenStep
from fedlearn.coordination.roster import Volunteer
from fedlearn.coordination.standing import Standing
from fedlearn.es.clipping import Clipping
from fedlearn.es.strategy import Strategy, tell
from fedlearn.es.update import Update

STRETCH = 4.0
"""After a step in which nobody was in time, the next ones last so many times what that took."""

EXCHANGES = 6.0
"""A step should last so many times what Assignment and Result take on their way, for three quarters of the volunteers.

The last ones of hundreds wait twice as long for the server as the median one, and the step for them.
"""


class ClosedStep(msgspec.Struct, frozen=True):
    """A step between its Update and the end of the server's own apply."""

    update: Update
    loss: float
    duration_s: float
    volunteers: int
    problem: str = ""
    """Why the run should not go on after it."""

    def report(self, digest: bytes) -> StepReport:
        """The step's figures; `digest` is the replica's after it."""
        return StepReport(
            step=self.update.step,
            loss=self.loss,
            members=self.update.n_members,
            duration_s=self.duration_s,
            volunteers=self.volunteers,
            digest=digest,
        )


def close_step(
    step: OpenStep, strategy: Strategy, *, clipping: Clipping, watch: DivergenceWatch, now: float
) -> ClosedStep:
    """The Update that what is in amounts to, and its figures."""
    spans, losses = step.collect()
    duration_s = now - step.opened_at
    update = tell(
        strategy,
        step.population,
        block=step.block,
        spans=spans,
        losses=losses,
        estimate=step.total_estimate(clipping),
        duration_s=duration_s,
    )
    finite = losses[np.isfinite(losses)]
    loss = float(finite.mean(dtype=np.float64)) if finite.size else math.nan
    problem = watch.took(step.population.step, losses)
    return ClosedStep(update, loss, duration_s, step.n_contributors, problem)


def settle_leases(step: OpenStep, volunteers: Iterable[Volunteer], ledger: Ledger, *, now: float) -> None:
    """Takes every lease back: counts what was earned, and who was late."""
    best = step.most_done
    for volunteer in volunteers:
        take_back(step, volunteer, best, now=now)
    for lease in step.leases:
        if lease.n_counted:
            for holder, n_members in _shared(lease.standing.holders, lease.n_counted):
                ledger.add(holder.identity, holder.name, n_members, lease.duration_s)
    for copy in step.copies:
        if copy.n_received:
            ledger.add_check(copy.standing.identity, copy.standing.name, copy.n_received, copy.duration_s)


def _shared(holders: Sequence[Standing], n_members: int) -> list[tuple[Standing, int]]:
    """What each has of them: seats of a crew alike, and together as many as there are."""
    n = len(holders)
    return [(holder, n_members * (place + 1) // n - n_members * place // n) for place, holder in enumerate(holders)]


def take_back(step: OpenStep, volunteer: Volunteer, best: float, *, now: float) -> None:
    """Takes a lease back; the best had this share of theirs done."""
    lease, volunteer.lease = volunteer.lease, None
    if lease is None or lease.is_done:
        return
    volunteer.measure(lease.n_finite, now - lease.leased_at)
    if lease.is_late(best):
        volunteer.standing.was_late()
    if lease.n_received == 0:
        volunteer.standing.rest(step.population.step)


@final
class Pace:
    """How long steps may be open: as planned, or longer where a group takes longer than that."""

    def __init__(self, planned_s: float) -> None:
        self._planned_s = planned_s
        self.time_per_step = planned_s
        """Seconds, of the next step."""
        self.last_s = 0.0
        """What the last step took."""

    def plan(self, planned_s: float) -> None:
        """Steps may be open so many seconds from now on."""
        self._planned_s = self.time_per_step = planned_s

    def least_s(self, volunteers: Iterable[Volunteer]) -> float:
        """How long a step should last so that little of it is spent on the line; at most half of what it may."""
        known = sorted(volunteer.exchange_s for volunteer in volunteers if volunteer.exchange_s is not None)
        if not known:
            return 0.0
        # Of three the second, so that one slow line among few does not set the pace.
        return min(EXCHANGES * known[3 * (len(known) - 1) // 4], self.time_per_step / 2)

    def stretch(self, waited_s: float) -> None:
        """Nobody finished a group in so many seconds."""
        self.time_per_step = STRETCH * waited_s

    def closed(self, duration_s: float, *, first_s: float) -> None:
        """A step took so many seconds, and so many until its first result, by which those after it may be shorter."""
        self.last_s = duration_s
        longest = math.inf if first_s >= self.time_per_step else self.time_per_step
        self.time_per_step = max(self._planned_s, min(STRETCH * first_s, longest))

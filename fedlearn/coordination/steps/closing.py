"""The end of a step: its Update, what its leases say about their holders, and the duration of the next steps."""

import math
from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Party
from fedlearn.coordination.steps.divergence import DivergenceWatch
from fedlearn.coordination.steps.middle import group_means, middle_mean
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.strategy import Strategy, tell
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.update import Update

STRETCH = 4.0
"""Multiple of the first result's time for which steps are open after one in which no volunteer was in time."""

EXCHANGES = 10.0
"""Multiple of the travel time of Assignment and Result that a step should be open for, for three quarters of the
volunteers.

The last ones of hundreds wait for the server twice as long as the median, and the step waits for them.
"""


class ClosedStep(msgspec.Struct, frozen=True):
    """A step whose Update is made and which the server's replica has not taken."""

    update: Update
    report: StepReport
    problem: str = ""
    """Why the run should not go on after it; otherwise empty."""
    is_alarming: bool = False
    """Whether somebody must check its losses before they end the run."""
    news: str = ""
    """What whoever watches the run should know of it; otherwise empty."""


def close_step(
    step: OpenStep, strategy: Strategy, *, clipping: Clipping, watch: DivergenceWatch, now: float
) -> ClosedStep:
    """Makes the Update of the results so far, and the step's figures."""
    spans, losses = step.collect()
    update = tell(
        strategy,
        step.population,
        block=step.block,
        spans=spans,
        losses=losses,
        estimate=step.total_estimate(clipping),
        moments=step.moments(),
        duration_s=now - step.opened_at,
    )
    loss = middle_mean(group_means(losses, step.population.group_size))
    report = report_of(step, update, loss, now=now)
    news = news_of(step, update)
    problem = watch.took(losses)
    # Losses that are alike end a search, so somebody must see that they are so.
    is_ending = strategy.optimizer.searches and update.attempt is not None and update.attempt.mark > 0.0
    return ClosedStep(update, report, problem=problem, is_alarming=watch.is_alarmed or is_ending, news=news)


def news_of(step: OpenStep, update: Update) -> str:
    """What an attempt by noise tells of the step that `update` ends; attempts by gradients are judged elsewhere."""
    if step.population.perturbation.space == "nothing" or update.attempt is None:
        return ""
    return update.attempt.news(of_search=update.optimizer.searches)


def report_of(step: OpenStep, update: Update, loss: float | None, *, now: float) -> StepReport:
    """What a step measured that `update` ends."""
    return StepReport(
        step=update.step,
        loss=loss,
        members=update.n_members,
        volunteers=step.n_contributors,
        duration_s=now - step.opened_at,
        variance_left=step.variance_left,
        loss_spread=update.shaping_scale or None,
    )


def settle_leases(step: OpenStep, parties: Iterable[Party], ledger: Ledger, *, now: float) -> None:
    """Takes back all leases: credits what counts, and notes who was late."""
    best = step.most_done
    for party in parties:
        take_back(step, party, best, now=now)
    for lease in step.leases:
        if lease.n_counted:
            for holder, n_members in _shared(lease.reputation.holders, lease.n_counted):
                ledger.add(holder.identity, holder.name, n_members, lease.duration_s)
    for copy in step.copies:
        if copy.n_received:
            ledger.add_check(copy.reputation.identity, copy.reputation.name, copy.n_received, copy.duration_s)


def _shared(holders: Sequence[Reputation], n_members: int) -> list[tuple[Reputation, int]]:
    """The members of each seat of a crew: equal shares whose sum is `n_members`."""
    n = len(holders)
    return [(holder, n_members * (place + 1) // n - n_members * place // n) for place, holder in enumerate(holders)]


def take_back(step: OpenStep, party: Party, best: float, *, now: float) -> None:
    """Takes a lease back; `best` is the greatest share that anybody has done of a lease."""
    lease = party.end(now)
    if lease is None or lease.is_done:
        return
    party.measure(lease.n_finite, now - lease.leased_at)
    if lease.is_late(best):
        party.reputation.was_late()
    if lease.n_received == 0:
        party.reputation.rest(step.population.step)


def line_s(parties: Iterable[Party]) -> float:
    """The time that the lines take for an Assignment and its Result, in seconds; 0: unknown."""
    return _three_quarters(party.line_s for party in parties)


def _three_quarters(exchanges: Iterable[float | None]) -> float:
    """What three quarters of the known exchanges take at most; 0 where there are none."""
    known = sorted(seconds for seconds in exchanges if seconds is not None)
    # The second of three, so that one slow line among few does not set the pace.
    return known[3 * (len(known) - 1) // 4] if known else 0.0


@final
class StepPace:
    """The durations of steps: as planned, or longer where a group takes longer."""

    def __init__(self, planned_s: float) -> None:
        self._planned_s = planned_s
        self.time_per_step = planned_s
        """Seconds that the next step may be open."""
        self.last_s = 0.0
        """Seconds that the last step was open."""

    def plan(self, planned_s: float) -> None:
        """Changes the seconds that steps may be open from now on."""
        self._planned_s = self.time_per_step = planned_s

    def least_s(self, parties: Iterable[Party]) -> float:
        """The shortest useful step, in seconds: travel time should be a small part of it; at most half of
        `time_per_step`."""
        return self._of_exchange(_three_quarters(party.exchange_s for party in parties))

    def line_step_s(self, parties: Iterable[Party]) -> float:
        """The same by the lines alone, whatever else makes exchanges longer now and then."""
        return self._of_exchange(line_s(parties))

    def _of_exchange(self, exchange_s: float) -> float:
        return min(EXCHANGES * exchange_s, self.time_per_step / 2)

    def stretch(self, waited_s: float) -> None:
        """Lengthens steps, since no volunteer finished a group in `waited_s`."""
        self.time_per_step = STRETCH * waited_s

    def closed(self, duration_s: float, *, first_s: float) -> None:
        """Takes the seconds for which a step was open, and those until its first result, which may shorten the next
        ones."""
        self.last_s = duration_s
        longest = math.inf if first_s >= self.time_per_step else self.time_per_step
        self.time_per_step = max(self._planned_s, min(STRETCH * first_s, longest))

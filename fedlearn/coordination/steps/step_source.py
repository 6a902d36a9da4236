"""Sources of steps: their populations, and the Updates that end them."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Protocol, final

import msgspec
import numpy as np

from fedlearn.coordination.leases.limiting import counted_speeds
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.roster import Party
from fedlearn.coordination.steps.closing import ClosedStep, StepPace, close_step
from fedlearn.coordination.steps.divergence import DivergenceWatch
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.standstill import LATE, StandstillWatch, judged
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.strategy import Population, Strategy, ask, search_end, sum_shaping, widening
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.sums.norm import l2_norm
from fedlearn.es.update import Update, elapsed_s_after


class StepSource(Protocol):
    """The steps for which a coordinator asks its volunteers."""

    paused_by: str
    """Name of the operator that paused the run; empty while steps are opened."""

    def completion(self, step: int, last: Update | None) -> str:
        """Why the run is complete after the Update `last`, before this step; empty where it is not."""

    def block_of(self, step: int) -> bytes:
        """The block of data that a volunteer needs if it joins before this step."""

    def open(
        self,
        step: int,
        last: Update | None,
        ready: Sequence[Party],
        *,
        pace: StepPace,
        first_member: int,
        now: float,
    ) -> OpenStep | None:
        """The step for the parties that are ready, with member numbers from `first_member` on; None: not yet."""

    def close(self, step: OpenStep, now: float) -> ClosedStep:
        """Makes the Update of the results so far, and the step's figures."""


@final
class OwnSteps:
    """The steps of a run's own strategy; those of a run that is fed wait for their block of data."""

    def __init__(self, plan: RunPlan, strategy: Strategy, *, is_fed: bool = False) -> None:
        self._plan = plan
        self._strategy = strategy
        self._is_fed, self._has_block = is_fed, False
        self.paused_by = ""
        self._clipping: defaultdict[int, Clipping] = defaultdict(Clipping)
        """The clipping of sums, by the number of local steps: their way is tens of times as long as a gradient."""
        self._watch = DivergenceWatch()
        self._standstill = StandstillWatch()

    def change(self, plan: RunPlan, strategy: Strategy) -> None:
        """Uses another plan and strategy for the steps that are opened from now on."""
        self._plan, self._strategy = plan, strategy

    def feed(self, plan: RunPlan, strategy: Strategy) -> None:
        """Lets the next step be opened, by this strategy on the block of this plan."""
        self.change(plan, strategy)
        self._has_block = True

    def completion(self, step: int, last: Update | None) -> str:
        done = self._plan.completion(step, elapsed_s_after(last)) or search_end(self._strategy, last)
        return done and (self._watch.lost or done)

    def block_of(self, step: int) -> bytes:
        return self._plan.block_of(step)

    def open(
        self,
        step: int,
        last: Update | None,
        ready: Sequence[Party],
        *,
        pace: StepPace,
        first_member: int,
        now: float,
    ) -> OpenStep | None:
        if self.paused_by or (self._is_fed and not self._has_block):
            return None
        strategy, layout = self._strategy, self._plan.layout
        members_per_s = sum(speed or 0.0 for speed in counted_speeds(ready, self._plan.max_share))
        known = [party.member_s for party in ready if party.member_s is not None]
        population = ask(
            strategy,
            step,
            last,
            members_per_s=members_per_s,
            least_s=pace.least_s(ready),
            line_step_s=pace.line_step_s(ready),
            n_machines=sum(party.n_machines for party in ready),
            member_s=median(known) if known else 0.0,
        )
        clipping = self._clipping[population.n_local_steps]
        if population.perturbation.is_summed and last is not None and not clipping.knows_lengths:
            clipping.begin(_length_of(last, population, layout))
        return OpenStep(
            population,
            opened_at=now,
            deadline=now + pace.time_per_step * widening(strategy, last),
            first_member=first_member,
            layout=layout,
            block=self._plan.block_of(step),
            shaping=sum_shaping(strategy, population, layout, n_volunteers=len(ready), members_per_s=members_per_s),
        )

    def close(self, step: OpenStep, now: float) -> ClosedStep:
        self._has_block = False
        clipping = self._clipping[step.population.n_local_steps]
        closed = close_step(step, self._strategy, clipping=clipping, watch=self._watch, now=now)
        if step.population.perturbation.space == "nothing":
            closed = self._judged(closed)
        if closed.update.attempt is not None and closed.update.attempt.move == "anew":
            self._watch = DivergenceWatch()  # where it begins now the loss may be much greater than it was
        return closed

    def _judged(self, closed: ClosedStep) -> ClosedStep:
        """The end of a step by gradients, with what follows for its attempt."""
        update, attempt = closed.update, closed.update.attempt
        number = update.step - (attempt.began if attempt is not None else 0)
        if number == 0:
            self._standstill = StandstillWatch()
        self._standstill.took(closed.report.loss)
        if number != LATE.stop - 1:
            return closed
        attempt, news = judged(attempt, self._standstill, self._strategy)
        return msgspec.structs.replace(closed, update=msgspec.structs.replace(update, attempt=attempt), news=news)


def _length_of(last: Update, population: Population, layout: ParameterLayout) -> float:
    """The length of the last step's total as a share of the usual one; 0 where it was of another kind."""
    if not last.estimate.is_there or last.group_size != population.group_size or last.gradient_scale <= 0.0:
        return 0.0
    is_noise = population.perturbation.space != "nothing"
    usual = math.sqrt(last.n_members / last.group_size) if is_noise else 1.0 / last.gradient_scale
    return l2_norm(decode_estimate(layout, last.estimate).astype(np.int64)) / usual

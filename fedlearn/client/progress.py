"""The text of a volunteer's terminal about its own part in a run: occasional lines, or a block that is renewed."""

from collections import deque
from collections.abc import Sequence
from typing import final

import numpy as np

from fedlearn.coordination.effects import Apply, Begin, Build, Compute, Evaluate, Load, TakeSeat
from fedlearn.es.replica import Replica
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass
from fedlearn.terminal import counted, format_count, format_duration, format_figures, format_share
from fedlearn.terminal.curve import RunningCurve
from fedlearn.terminal.drawing import Goal, LiveBlock, Loss
from fedlearn.wire.messages import Credit, News

LINE_INTERVAL_S = 10.0

SHARE_STEPS = 20
"""The number of last steps over which this machine's share of the work and the run's speed are measured."""

LOSS_UNITS = {"tokens": " nats/token"}
"""The unit of a loss by the unit of work; the losses of other tasks are in their users' own units."""

Spans = Sequence[tuple[int, int]]
"""Ranges of members, (first member, number of members), ascending and disjoint."""


@final
class Contribution:
    """Measures what this machine computes: a line when it has joined, then one every LINE_INTERVAL_S, or a block."""

    def __init__(self, *, has_block: bool = False) -> None:
        self._has_block = has_block
        self._run = ""
        self._since: float | None = None
        self._n_seats = 1
        """Number of seats in this machine's crew; it has an equal share of the members that pass."""
        self._n_members = 0
        self._members_per_s: float | None = None
        self._own: list[tuple[int, int]] = []
        self._steps: deque[tuple[float, int, Spans, Spans]] = deque(maxlen=SHARE_STEPS)
        """The last steps: (time, step, members that counted, members of its own)."""
        self._news: News | None = None
        self._news_at = 0.0
        self._losses = RunningCurve()
        """Losses of this machine's own trials: the server tells the run's loss only every few seconds."""
        self._own_loss = ""

    def performed(
        self,
        compute: Compute,
        result: object,
        replica: Replica | None,
        *,
        n_steps: int,
        now: float,
        credited: str = "",
    ) -> str | None:
        """The line to show after this computation; None where there is none.

        `n_steps` is the number of steps since the machine joined, `credited` what its identity is credited with, in
        words.
        """
        match compute:
            case Build(welcome):
                self._run = welcome.run
            case Load() | Begin() if self._since is None and replica is not None:
                self._since = now
                return f"joined run {self._run} at step {replica.step}: {replica.layout.n_trained} parameters"
            case Apply(update):
                self._steps.append((now, update.step, update.spans, tuple(self._own)))
                self._own.clear()
            case TakeSeat(seat):
                self._n_seats = len(seat.cuts) + 1
            case Evaluate(trials) | Pass(trials):
                self._n_members += trials.n_members
                self._own.append((trials.first_member, trials.n_members))
                self._watch_losses(result, now)
        if self._since is None or now < self._since + LINE_INTERVAL_S:
            return None
        self._members_per_s = self._n_members / (now - self._since)
        self._since, self._n_members = now, 0
        if self._has_block:
            return None
        line = f"{n_steps} steps taken, {self._share_of(self._members_per_s)}"
        return f"{line}; {credited}" if credited else line

    def told(self, news: News | None, now: float) -> None:
        """Takes the server's news of the run."""
        if news is None or news is self._news:
            return
        self._news, self._news_at = news, now

    def block(self, step: int, *, n_steps: int, now: float, unit: str = "", credited: str = "") -> LiveBlock:
        """The block, when this machine's replica stands before `step`; `unit` is that of the work."""
        share = share_of([(counts, own) for _, _, counts, own in self._steps])
        own = [f"{format_share(share / self._n_seats)} of the work"] if share is not None else []
        speed = self._speed(now)
        own += [f"{format_count(speed / self._n_seats)} members/s"] if speed else []
        own += [f"{counted(n_steps, 'step')} taken"]
        facts = [("lends", ", ".join(own))]
        if self._news is not None:
            others = max(self._news.volunteers - 1, 0)
            facts.append(("others", counted(others, "other volunteer") if others else "none, this machine is alone"))
        if credited:
            facts.append(("credit", credited))
        return LiveBlock(title=self._run, goal=self._goal(step, now), loss=self._loss(unit), facts=tuple(facts))

    def _share_of(self, members_per_s: float) -> str:
        """This machine's share of the members that it computes, or that pass through its part, in words."""
        own = format_count(members_per_s / self._n_seats)
        if self._n_seats == 1:
            return f"{own} members/s of its own"
        return f"{own} members/s, its share of the {format_count(members_per_s)} of its crew"

    def _speed(self, now: float) -> float:
        """Members per second; over the time since the last line, unless that is short."""
        elapsed_s = now - self._since if self._since is not None else 0.0
        if elapsed_s < LINE_INTERVAL_S / 5 and self._members_per_s is not None:
            return self._members_per_s
        return self._n_members / elapsed_s if elapsed_s > 0 else 0.0

    def _goal(self, step: int, now: float) -> Goal:
        news = self._news
        if news is None:
            return Goal(step)
        left_s = news.left_s - (now - self._news_at) if news.left_s is not None else float("inf")
        if news.steps and len(self._steps) > 1:
            (began, first, *_), (ended, last, *_) = self._steps[0], self._steps[-1]
            left_s = min(left_s, max(news.steps - step, 0) * (ended - began) / max(last - first, 1))
        return Goal(step, news.steps, max(left_s, 0.0), step / news.steps if news.steps else None)

    def _loss(self, unit: str) -> Loss | None:
        if not self._own_loss:
            return None
        return Loss(f"{self._of_run()}{self._own_loss}{LOSS_UNITS.get(unit, '')} in own trials", self._losses)

    def _of_run(self) -> str:
        """The run's loss as its owner sees it, where that is known."""
        news = self._news
        if news is None or news.loss is None:
            return ""
        return f"{format_figures(dict([news.shown])) if news.shown is not None else f'{news.loss:.4g}'}, "

    def _watch_losses(self, result: object, now: float) -> None:
        if isinstance(result, TrialResults) and np.isfinite(loss := float(result.losses.mean())):
            self._losses.add(loss, now)
            self._own_loss = f"{loss:.4g}"


def share_of(steps: Sequence[tuple[Spans, Spans]]) -> float | None:
    """The share of one's own members among those that counted in these steps; None where none counted."""
    total = sum(count for counts, _ in steps for _, count in counts)
    if not total:
        return None
    own = sum(
        max(min(first + count, mine + n_mine) - max(first, mine), 0)
        for counts, own in steps
        for mine, n_mine in own
        for first, count in counts
    )
    return own / total


def credit_in_short(credit: Credit, unit: str) -> str:
    """The credit of an identity, short enough for a line of a block."""
    said = f"{format_count(credit.members)} members, {format_count(credit.work)} trial-{unit}"
    return f"{said}, {format_duration(credit.seconds)}" + (f", {credit.caught} false results" if credit.caught else "")


def credit_in_words(credit: Credit, unit: str) -> str:
    """The credit of an identity as a sentence; `unit` is that of its work."""
    sentence = (
        f"its identity is credited with {format_count(credit.members)} members, {format_count(credit.work)} "
        f"trial-{unit} and {format_duration(credit.seconds)} in all"
    )
    if credit.agreed:
        sentence += f"; groups checked and right: {format_count(credit.agreed)}"
    if credit.caught:
        sentence += f"; results checked and false: {format_count(credit.caught)}"
    return sentence

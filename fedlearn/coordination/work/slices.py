"""The work of a volunteer that holds a whole replica: slices of its lease, each followed by a Result."""

from typing import final

from fedlearn.coordination.effects import ClientEffect, Evaluate, Reply
from fedlearn.coordination.work.work import LineEvent
from fedlearn.es.sums.exchange import SUM_SLICE_S
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Assignment, Message, Result

SLICE_S = 0.25
"""Seconds of trials between two Results: the longest that an Update waits, and the most that a killed client loses."""

MAX_SLICE_MEMBERS = 2**20
"""The most losses in one Result."""

_FIRST_SLICE_GROUPS = 1
"""Groups of the very first slice, when this machine's speed is not known: one may take minutes."""

_SAFETY = 0.9
"""Share of the time left that a slice may take: its Result must arrive before the step closes."""


@final
class LeaseSlices:
    """Slices that are so short that a lost machine loses little, and that end before the step does."""

    bytes_waiting = 0

    def __init__(self) -> None:
        self._assignment: Assignment | None = None
        self._assigned_at = self._deadline = 0.0
        self._n_done = 0
        self._members_per_s: float | None = None

    def take(self, event: Message | LineEvent, now: float) -> list[ClientEffect]:
        if isinstance(event, Assignment):
            self._assignment, self._n_done = event, 0
            self._assigned_at, self._deadline = now, now + event.time_left_s
        return []

    def give_up(self) -> None:
        self._assignment = None

    def next(self, step: int, now: float) -> Evaluate | None:
        assignment = self._assignment
        if assignment is None or assignment.step != step:
            return None
        left = assignment.quota - self._n_done
        time_left_s = _SAFETY * (self._deadline - now)
        if left <= 0 or (time_left_s <= 0.0 and self._n_done > 0):
            return None
        group_size = assignment.group_size
        n_groups = _FIRST_SLICE_GROUPS
        if self._members_per_s is not None:
            is_summed = assignment.shaping is not None or assignment.perturbation.is_summed
            slice_s = SUM_SLICE_S if is_summed else SLICE_S
            n_groups = int(self._members_per_s * max(min(slice_s, time_left_s), 0.0) / group_size)
            if n_groups == 0 and self._members_per_s * time_left_s < group_size and self._n_done > 0:
                return None  # the next group would come too late
        trials = Trials(
            step=assignment.step,
            perturbation=assignment.perturbation,
            group_size=group_size,
            first_member=assignment.first_member + self._n_done,
            n_members=min(max(min(n_groups, MAX_SLICE_MEMBERS // group_size), 1) * group_size, left),
            shaping=assignment.shaping,
        )
        return Evaluate(trials, assignment.block)

    def done(
        self, order: Evaluate | Pass, result: Passed | TrialResults, digest: bytes, *, started: float, now: float
    ) -> list[ClientEffect]:
        assert isinstance(result, TrialResults)
        trials, assignment = order.trials, self._assignment
        self._members_per_s = trials.n_members / max(now - started, 1e-6)
        expected = None if assignment is None else assignment.first_member + self._n_done
        if assignment is None or trials.step != assignment.step or trials.first_member != expected:
            return []  # the step closed meanwhile
        self._n_done += trials.n_members
        busy_s = now - self._assigned_at
        return [
            Reply(
                Result(
                    trials.step,
                    trials.first_member,
                    result.losses,
                    digest,
                    result.estimate,
                    busy_s,
                    result.variance_left,
                    moments=result.moments,
                )
            )
        ]

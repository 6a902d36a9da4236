"""A seat's part of its crew's work, as a pure machine: which members come next, and what is sent of them.

The first seat begins with a few members of the lease at a time and goes on while not too many are on their way, so that
all seats compute at once. The last one reports losses, in whole groups.
"""

from collections import deque
from typing import final

import numpy as np

from fedlearn.coordination.effects import Pass
from fedlearn.es.trials import Float32Array, TrialResults, Trials
from fedlearn.wire.messages import Activations, Assignment, Message, Result, Seat, Taken


@final
class Pipeline:
    """Of one seat, from its first lease to the last."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._assignment: Assignment | None = None
        self._assigned_at = self._deadline = 0.0
        self._next_member = self._taken = 0
        self._waiting: deque[Activations] = deque()
        self._losses: list[Float32Array] = []
        self.bytes_waiting = 0
        """Of what the seat before sent, and this one has not come to."""

    def assign(self, assignment: Assignment, now: float) -> None:
        """The crew has another lease; whatever is left of the one before is not wanted."""
        self.clear()
        self._assignment = assignment
        self._assigned_at, self._deadline = now, now + assignment.time_left_s
        self._next_member = self._taken = assignment.first_member

    def clear(self) -> None:
        """The step is over."""
        self._assignment = None
        self._waiting.clear()
        self._losses.clear()
        self.bytes_waiting = 0

    def received(self, activations: Activations) -> None:
        """The seat before sent something; what is not of the lease is left alone."""
        assignment = self._assignment
        if self._seat.place == 0 or assignment is None or activations.step != assignment.step:
            return
        self._waiting.append(activations)
        self.bytes_waiting += len(activations.payload)

    def taken(self, message: Taken) -> None:
        """Losses arrived: there is room for others to be on their way."""
        if self._assignment is not None and message.step == self._assignment.step:
            self._taken = max(self._taken, message.next_member)

    def next(self, step: int, now: float) -> Pass | None:
        """What to compute now, with weights that stand before `step`."""
        assignment = self._assignment
        if assignment is None or assignment.step != step:
            return None
        if self._seat.place > 0:
            return self._next_of_others(assignment)
        size, offset = assignment.group_size, self._next_member - assignment.first_member
        most = size + self._seat.window * self._seat.batch
        if offset >= assignment.quota or self._next_member - self._taken >= most:
            return None
        if now >= self._deadline and offset >= size and offset % size == 0:
            return None  # a whole group of it, however late, ends a step that has no results yet
        first, n_members = self._next_member, min(self._seat.batch, size - offset % size)
        self._next_member += n_members
        return Pass(_trials(assignment, first, n_members), assignment.block, b"")

    def _next_of_others(self, assignment: Assignment) -> Pass | None:
        if not self._waiting:
            return None
        activations = self._waiting.popleft()
        self.bytes_waiting -= len(activations.payload)
        trials = _trials(assignment, activations.first_member, activations.n_members)
        return Pass(trials, assignment.block, activations.payload)

    def passed(self, done: Pass, result: bytes | TrialResults, digest: bytes, now: float) -> list[Message]:
        """What to say of members that went through; nothing where the step is over."""
        trials, assignment = done.trials, self._assignment
        if assignment is None or assignment.step != trials.step:
            return []
        if isinstance(result, bytes):
            return [Activations(trials.step, trials.first_member, trials.n_members, digest, result)]
        self._losses.append(result.losses)
        end = trials.first_member + trials.n_members
        if (end - assignment.first_member) % assignment.group_size:
            return []
        losses, self._losses = np.concatenate(self._losses), []
        busy_s = now - self._assigned_at
        return [Result(trials.step, end - losses.size, losses, digest, busy_s=busy_s)]


def _trials(assignment: Assignment, first_member: int, n_members: int) -> Trials:
    """Some members of a group of the lease."""
    return Trials(
        step=assignment.step,
        perturbation=assignment.perturbation,
        group_size=assignment.group_size,
        first_member=first_member,
        n_members=n_members,
    )

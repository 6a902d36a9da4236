"""A seat's part of its crew's work, as a pure machine: which members come next, and which messages follow.

The first seat begins with a few members of the lease at a time and goes on while not too many are on their way, so that
all seats compute at once. The last one reports losses, in whole groups, and within a group how far members are through.
"""

from collections import deque
from typing import final

import numpy as np

from fedlearn.coordination.crews.crew import misfit_of
from fedlearn.coordination.effects import Pass
from fedlearn.coordination.work.flow import reach
from fedlearn.es.trials import Float32Array, TrialResults, Trials
from fedlearn.wire.messages import Activations, Assignment, Message, Result, Seat, SeatBefore, Taken


@final
class Pipeline:
    """The pipeline of one seat, from its first lease to the last."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._assignment: Assignment | None = None
        self._assigned_at = self._deadline = 0.0
        self._next_member = self._taken = 0
        self._waiting: deque[Activations] = deque()
        self._losses: list[Float32Array] = []
        self._before: SeatBefore | None = None
        self._given = 0
        """The member before which the previous seat has sent activations directly."""
        self._early: list[Activations] = []
        """Activations from the previous seat that came before the lease that they belong to."""
        self._bytes_waiting = self._bytes_early = 0

    @property
    def bytes_waiting(self) -> int:
        """Bytes that the previous seat sent and this one has not computed."""
        return self._bytes_waiting + self._bytes_early

    def assign(self, assignment: Assignment, now: float) -> str:
        """Begins another lease of the crew; activations of the last one are dropped.

        Gives a description of what is wrong with early activations of the previous seat; empty where nothing is.
        """
        self.clear()
        self._assignment = assignment
        self._assigned_at, self._deadline = now, now + assignment.time_left_s
        self._next_member = self._taken = self._given = assignment.first_member
        early, self._early, self._bytes_early = self._early, [], 0
        return next(filter(None, map(self.heard, early)), "")

    def clear(self) -> None:
        """Drops all work, since the step is over."""
        self._assignment = None
        self._waiting.clear()
        self._losses.clear()
        self._bytes_waiting = 0

    def received(self, activations: Activations) -> None:
        """Takes activations of the previous seat; those of another lease are ignored."""
        assignment = self._assignment
        if self._seat.place == 0 or assignment is None or activations.step != assignment.step:
            return
        self._waiting.append(activations)
        self._bytes_waiting += len(activations.payload)

    @property
    def hears(self) -> bool:
        """Whether a previous seat may send straight to this one."""
        return self._before is not None

    def hear(self, before: SeatBefore | None) -> None:
        """Sets the seat that sends straight to this one from now on; activations of another one are dropped."""
        self._before = before
        self._early.clear()
        self._bytes_early = 0

    def heard(self, said: Activations) -> str:
        """Takes activations that came straight from the previous seat; gives what is wrong with them, empty where
        nothing is.

        The server has not checked them, and a lease may reach that seat first.
        """
        before, assignment = self._before, self._assignment
        if before is None:
            return ""
        if assignment is None or _place_of(said) >= (assignment.step, assignment.first_member + assignment.quota):
            self._early.append(said)
            n_bytes = self._bytes_early = sum(len(early.payload) for early in self._early)
            too_much = self._seat.window * (before.batch * before.member_bytes + before.group_bytes)
            return f"expected at most {too_much} bytes before their lease, got {n_bytes}" if n_bytes > too_much else ""
        if _place_of(said) < (assignment.step, self._given):
            return ""  # of a lease that is over
        if said.first_member != self._given:
            return f"expected members from {self._given} on, got some from {said.first_member} on"
        offset = said.first_member - assignment.first_member
        if misfit := misfit_of(said, before, offset=offset, group_size=assignment.group_size):
            return misfit
        self._given += said.n_members
        self.received(said)
        return ""

    def taken(self, message: Taken) -> None:
        """Takes note that members have passed all seats: others may follow."""
        if self._assignment is not None and message.step == self._assignment.step:
            self._taken = max(self._taken, message.next_member)

    def next(self, step: int, now: float) -> Pass | None:
        """The next computation, with weights that stand before `step`."""
        assignment = self._assignment
        if assignment is None or assignment.step != step:
            return None
        if self._seat.place > 0:
            return self._next_of_others(assignment)
        size, offset = assignment.group_size, self._next_member - assignment.first_member
        through, batch = self._taken - assignment.first_member, self._seat.batch
        most = reach(through, window=self._seat.window, batch=batch, group_size=size)
        if offset >= min(assignment.quota, most):
            return None
        if now >= self._deadline and offset >= size and offset % size == 0:
            return None  # a whole group of it, however late, ends a step that has no results yet
        first, n_members = self._next_member, min(batch, size - offset % size)
        self._next_member += n_members
        return Pass(_trials(assignment, first, n_members), assignment.block, b"")

    def _next_of_others(self, assignment: Assignment) -> Pass | None:
        if not self._waiting:
            return None
        activations = self._waiting.popleft()
        self._bytes_waiting -= len(activations.payload)
        trials = _trials(assignment, activations.first_member, activations.n_members)
        return Pass(trials, assignment.block, activations.payload)

    def passed(self, trials: Trials, result: bytes | TrialResults, digest: bytes, now: float) -> list[Message]:
        """The messages about members that passed; none where their lease is over, even in the same step."""
        assignment = self._assignment
        if assignment is None or assignment.step != trials.step:
            return []
        if not 0 <= trials.first_member - assignment.first_member < assignment.quota:
            return []
        if isinstance(result, bytes):
            return [Activations(trials.step, trials.first_member, trials.n_members, digest, result)]
        self._losses.append(result.losses)
        end = trials.first_member + trials.n_members
        if (end - assignment.first_member) % assignment.group_size:
            return [Taken(trials.step, end)]
        losses, self._losses = np.concatenate(self._losses), []
        busy_s = now - self._assigned_at
        return [Result(trials.step, end - losses.size, losses, digest, busy_s=busy_s)]


def _place_of(said: Activations) -> tuple[int, int]:
    """The position of its members in the order of all members of a run."""
    return said.step, said.first_member


def _trials(assignment: Assignment, first_member: int, n_members: int) -> Trials:
    """Some members of a group of the lease."""
    return Trials(
        step=assignment.step,
        perturbation=assignment.perturbation,
        group_size=assignment.group_size,
        first_member=first_member,
        n_members=n_members,
    )

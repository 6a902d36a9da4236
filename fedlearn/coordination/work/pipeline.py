"""A seat's part of its crew's work, as a pure machine: which members come next, and which messages follow.

The first seat begins with a few members of the lease at a time and goes on while not too many are on their way, so that
all seats compute at once. Where members have noise, the last seat reports losses, in whole groups, and within a group
how far members are through. Without noise members come back: the last seat turns, the others keep what they were sent
until then, and at the end of the lease each says the sum of its own tensors' gradients.
"""

from collections import deque
from typing import final

import numpy as np

from fedlearn.coordination.work.flow import reach
from fedlearn.coordination.work.way import MessageSizes, end_of, members_together, misfit_of
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.trials import Float32Array, Trials
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Assignment, Message, Result, Seat, SeatBefore, Taken


@final
class Pipeline:
    """The pipeline of one seat, from its first lease to the last."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._is_last = seat.place == len(seat.cuts)
        self._assignment: Assignment | None = None
        self._assigned_at = self._deadline = 0.0
        self._next_member = self._taken = 0
        self._waiting: deque[Activations] = deque()
        self._kept: deque[bytes] = deque()
        """What this seat was sent of members that it has passed on, and that have not come back."""
        self._passed = 0
        """The member before which this seat has passed all on."""
        self._returned: deque[Activations] = deque()
        """Cotangents of members that have come back, and that this seat has not differentiated."""
        self._losses: list[Float32Array] = []
        self._before: SeatBefore | None = None
        self._given = {False: 0, True: 0}
        """The member before which the next seat has sent cotangents directly (True), and the previous one activations.
        """
        self._early: list[Activations] = []
        """Activations from the previous seat that came before the lease that they belong to."""

    @property
    def bytes_waiting(self) -> int:
        """Bytes that neighbours sent and this seat still needs."""
        waiting = sum(len(said.payload) for said in (*self._waiting, *self._returned, *self._early))
        return waiting + sum(map(len, self._kept))

    def assign(self, assignment: Assignment, now: float) -> str:
        """Begins another lease of the crew; activations of the last one are dropped.

        Gives a description of what is wrong with early activations of the previous seat; empty where nothing is.
        """
        self.clear()
        self._assignment = assignment
        self._assigned_at, self._deadline = now, now + assignment.time_left_s
        self._next_member = self._taken = self._passed = assignment.first_member
        self._given = dict.fromkeys(self._given, assignment.first_member)
        early, self._early = self._early, []
        return next(filter(None, map(self.heard, early)), "")

    def clear(self) -> None:
        """Drops all work, since the step is over."""
        self._assignment = None
        for messages in (self._waiting, self._kept, self._returned):
            messages.clear()
        self._losses.clear()

    def received(self, activations: Activations) -> None:
        """Takes what a neighbour computed; what belongs to another lease is ignored."""
        assignment = self._assignment
        if assignment is None or activations.step != assignment.step:
            return
        if not activations.backward:
            if self._seat.place > 0:
                self._waiting.append(activations)
        elif end_of(activations) <= self._passed:
            self._returned.append(activations)

    @property
    def hears(self) -> bool:
        """Whether a previous seat may send straight to this one."""
        return self._before is not None

    def hear(self, before: SeatBefore | None) -> None:
        """Sets the seat that sends straight to this one from now on; activations of another one are dropped."""
        self._before = before
        self._early.clear()

    def heard(self, said: Activations) -> str:
        """Takes what came straight from a neighbour; gives what is wrong with it, empty where nothing is.

        The server has not checked it, and a lease may reach the previous seat first.
        """
        before, assignment = self._before, self._assignment
        if said.backward:
            if assignment is None or said.step != assignment.step:
                return ""  # nothing comes back before it was passed on
            sizes = MessageSizes(self._seat.batch, self._seat.member_bytes)
        elif before is None:
            return ""
        else:
            sizes = MessageSizes(before.batch, before.member_bytes, before.group_bytes)
        if assignment is None or _place_of(said) >= (assignment.step, assignment.first_member + assignment.quota):
            self._early.append(said)
            n_bytes = sum(len(early.payload) for early in self._early)
            too_much = self._seat.window * (sizes.batch * sizes.member_bytes + sizes.group_bytes)
            return f"expected at most {too_much} bytes before their lease, got {n_bytes}" if n_bytes > too_much else ""
        given = self._given[said.backward]
        if _place_of(said) < (assignment.step, given):
            return ""  # of a lease that is over
        if said.first_member != given:
            return f"expected members from {given} on, got some from {said.first_member} on"
        if misfit := misfit_of(said, sizes, assignment):
            return misfit
        if said.backward and end_of(said) > self._passed:
            return f"expected cotangents of members before {self._passed}, got some before {end_of(said)}"
        self._given[said.backward] = end_of(said)
        self.received(said)
        return ""

    def taken(self, message: Taken) -> None:
        """Takes note that members have passed all seats: others may follow."""
        if self._assignment is not None and message.step == self._assignment.step:
            self._taken = max(self._taken, message.next_member)

    def next(self, step: int, now: float) -> Pass | None:
        """The next computation, with weights that stand before `step`; members that come back are first."""
        assignment = self._assignment
        if assignment is None or assignment.step != step:
            return None
        if self._returned:
            back = self._returned.popleft()
            return self._pass(assignment, back.first_member, back.n_members, self._kept.popleft(), back.payload)
        if self._seat.place == 0:
            return self._next_of_first(assignment, now)
        if not self._waiting:
            return None
        said = self._waiting.popleft()
        return self._pass(assignment, said.first_member, said.n_members, said.payload)

    def _next_of_first(self, assignment: Assignment, now: float) -> Pass | None:
        batch, offset = self._seat.batch, self._next_member - assignment.first_member
        size, through = members_together(assignment, batch), self._taken - assignment.first_member
        most = reach(through, window=self._seat.window, batch=batch, group_size=size)
        if offset >= min(assignment.quota, most):
            return None
        is_late = now >= self._deadline and assignment.perturbation.has_noise
        if is_late and offset >= size and offset % size == 0:
            return None  # a whole group of it, however late, ends a step that has no results yet
        n_members = min(batch, size - offset % size, assignment.quota - offset)
        self._next_member += n_members
        return self._pass(assignment, assignment.first_member + offset, n_members, b"")

    def _pass(
        self, assignment: Assignment, first: int, n_members: int, payload: bytes, cotangents: bytes | None = None
    ) -> Pass:
        trials = _trials(assignment, first, n_members)
        if assignment.perturbation.has_noise:
            return Pass(trials, assignment.block, payload)
        if cotangents is None and not self._is_last:
            self._kept.append(payload)
        lease = _trials(assignment, assignment.first_member, assignment.quota)
        return Pass(trials, assignment.block, payload, cotangents, lease)

    def passed(self, order: Pass, result: Passed, digest: bytes, now: float) -> list[Message]:
        """The messages about members that passed; none where their lease is over, even in the same step."""
        assignment, trials = self._assignment, order.trials
        if assignment is None or assignment.step != trials.step:
            return []
        if not 0 <= trials.first_member - assignment.first_member < assignment.quota:
            return []
        end = trials.first_member + trials.n_members
        if result.results is not None and result.results.losses.size:
            self._losses.append(result.results.losses)
        comes_back = order.lease is not None and (self._is_last or order.cotangents is not None)
        messages: list[Message] = []
        if result.payload:
            said = Activations(trials.step, trials.first_member, trials.n_members, digest, result.payload, comes_back)
            messages.append(said)
        if not (comes_back or self._is_last):
            self._passed = end
            return messages
        if comes_back and self._seat.place == 0:
            self._taken = end
        return messages + self._said_at_the_end(assignment, end, result, digest, now)

    def _said_at_the_end(
        self, assignment: Assignment, end: int, result: Passed, digest: bytes, now: float
    ) -> list[Message]:
        """What is said of members that end here: losses of whole groups, or the sum of a whole lease, and how far they
        are until then."""
        has_noise = assignment.perturbation.has_noise
        size = assignment.group_size if has_noise else assignment.quota
        if (end - assignment.first_member) % size:
            is_end = has_noise or self._seat.place == 0
            return [Taken(assignment.step, end)] if is_end else []
        losses = np.concatenate([np.zeros(0, dtype=np.float32), *self._losses])
        self._losses.clear()
        estimate = result.results.estimate if result.results is not None else NO_ESTIMATE
        return [Result(assignment.step, end - size, losses, digest, estimate, busy_s=now - self._assigned_at)]


def _place_of(said: Activations) -> tuple[int, int]:
    """The position of its members in the order of all members of a run."""
    return said.step, said.first_member


def _trials(assignment: Assignment, first_member: int, n_members: int) -> Trials:
    """Some members of the lease."""
    return Trials(
        step=assignment.step,
        perturbation=assignment.perturbation,
        group_size=assignment.group_size,
        first_member=first_member,
        n_members=n_members,
    )

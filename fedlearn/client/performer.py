"""Performs a worker's effects in order, over sockets and in memory alike."""

import re
from collections.abc import Callable, Iterable
from typing import Protocol, final

from fedlearn.client.progress import Contribution, credit_in_short, credit_in_words
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Build, ClientEffect, Compute, Evaluate, Forward, Leave, Link, Notice, Reply
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Passed
from fedlearn.terminal.drawing import LiveBlock
from fedlearn.wire.messages import Activations, Message, Neighbours

Computed = bytes | TrialResults | Passed | None


class VolunteerShell(Protocol):
    """What surrounds a performer: a connection, a clock, and a place for computations."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def send(self, message: Message) -> None:
        """Queues a message, unless either side has parted."""

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        """Runs a computation, and calls `then` with the result if the conversation still goes on."""

    def say(self, text: str) -> None:
        """Shows a line to the person at this machine."""

    def introduce(self, neighbours: Neighbours) -> None:
        """Connects to these neighbours in a crew from now on, and to no others."""

    def forward(self, activations: Activations) -> None:
        """Sends straight to the next seat."""

    def left(self, leave: Leave) -> None:
        """Ends the conversation."""


_FIGURES = re.compile(r"[0-9][0-9.e+-]*")


@final
class VolunteerPerformer:
    """Performs the effects of one conversation, in the order in which the worker gave them."""

    def __init__(
        self, worker: Worker, volunteer: VolunteerReplica, shell: VolunteerShell, *, has_block: bool = False
    ) -> None:
        """`has_block` says whether the shell shows the block, which then replaces the lines."""
        self._worker = worker
        self._volunteer = volunteer
        self._shell = shell
        self._progress = Contribution(has_block=has_block)
        self._reported = ""

    def perform(self, effects: Iterable[ClientEffect]) -> None:
        """Performs effects; those that computations lead to follow when these are done."""
        for effect in effects:
            match effect:
                case Reply(message):
                    self._shell.send(message)
                case Notice(text):
                    self._shell.say(text)
                case Link(neighbours):
                    self._shell.introduce(neighbours)
                case Forward(activations):
                    self._shell.forward(activations)
                case Leave():
                    self._shell.left(effect)
                case compute:
                    self._compute(compute)

    @property
    def credited(self) -> str:
        """The credit of this machine's identity, in words; empty where the server has not reported any."""
        credit = self._worker.credit
        return "" if credit is None else credit_in_words(credit, self._volunteer.unit)

    def block(self) -> LiveBlock | None:
        """The present state, for a terminal; None before this machine holds the run's weights."""
        replica, credit, now = self._volunteer.replica, self._worker.credit, self._shell.now()
        if replica is None:
            return None
        unit = self._volunteer.unit
        credited = credit_in_short(credit, unit) if credit is not None else ""
        self._progress.told(credit.news if credit is not None else None, now)
        return self._progress.block(replica.step, n_steps=self._worker.n_steps, now=now, unit=unit, credited=credited)

    def _compute(self, compute: Compute) -> None:
        def finish(result: Computed) -> None:
            now = self._shell.now()
            self.perform(self._worker.computed(result, now))
            if line := self._progress.performed(
                compute, result, self._volunteer.replica, n_steps=self._worker.n_steps, now=now, credited=self.credited
            ):
                self._shell.say(line)
            if isinstance(compute, Build) and self._worker.is_idle and (lacks := self._volunteer.lacks):
                self._shell.say(f"waiting for a part of the model: {lacks}")
            if isinstance(compute, Evaluate):
                self._report()

        self._shell.compute(lambda: self._volunteer.perform(compute), finish)

    def _report(self) -> None:
        """Prints how trials run whenever that changes; figures alone are no news."""
        report = self._volunteer.report
        words = _FIGURES.sub("", report)
        if words != self._reported:
            self._reported = words
            for line in report.splitlines():
                self._shell.say(line)

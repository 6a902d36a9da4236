"""The inbox in which a running server finds its operator's orders, follows and answers them."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar, final

from fedlearn.config import ConfigError
from fedlearn.coordination.effects import SaveCheckpoint, ServerEffect
from fedlearn.coordination.operator import RunOperator
from fedlearn.server.training.feed import Feed
from fedlearn.storage.durable import StorageError
from fedlearn.storage.orders import (
    Answer,
    Finish,
    GoOn,
    Order,
    OrderFile,
    Pause,
    SendAway,
    Set,
    Stop,
    WriteCheckpoint,
    clear,
    reply,
    take,
)
from fedlearn.tasks.blocks import Columns

INTERVAL_S = 1.0
"""Seconds between two looks."""

T = TypeVar("T")


class Office(Protocol):
    """The state of the run outside of the coordinator."""

    @property
    def step(self) -> int:
        """The step before which the replica stands."""

    def change(self, operator: RunOperator, key: str, text: str, now: float) -> str:
        """Changes a setting; gives a sentence about it.

        Raises:
            ConfigError: the setting cannot change, or the value is out of its range.
        """

    def finish(self, operator: RunOperator, end: int, more: int | None, now: float) -> int:
        """Ends the run `more` steps after the step `end`, None: as many as suit it; gives the step that it ends at.

        Raises:
            ConfigError: the run can't take further steps.
        """

    def feed(self, operator: RunOperator, columns: Columns, n_members: int, now: float) -> list[ServerEffect]:
        """Opens a step of so many members on these data; 0 members: as many as the settings say."""


class OrderShell(Protocol):
    """The surroundings of an inbox."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def say(self, text: str) -> None:
        """Shows a line to the person at the terminal."""

    def perform(self, effects: Iterable[ServerEffect]) -> None:
        """Performs the effects of an order."""

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs a task after all that were given before, and calls `then` with its result."""


@final
class OrderInbox:
    """Looks for orders now and then, beside the training; the answers are written to the folder."""

    def __init__(self, folder: Path, office: Office, operator: RunOperator, feed: Feed | None = None) -> None:
        """Makes the folder for orders, and removes old files from it; `feed` brings the data of steps.

        Raises:
            StorageError: the folder cannot be made.
        """
        clear(folder)
        self._folder = folder
        self._office = office
        self._operator = operator
        self._feed = feed
        self._due = 0.0
        self._is_looking = False
        self._pausing: list[OrderFile] = []
        """Orders to pause, until the open step has ended."""
        self._answers: list[tuple[OrderFile, Answer]] = []

    def open(self, shell: OrderShell) -> None:
        """Begins to take data on the event loop that runs now, where steps wait for some."""
        if self._feed is not None:
            self._feed.open(
                lambda columns, n_members: shell.perform(
                    self._office.feed(self._operator, columns, n_members, shell.now())
                )
            )

    def is_due(self, now: float) -> bool:
        """Checks if a look is due, and if so, sets the time of the next one."""
        has_news = self._answers or (self._pausing and self._operator.is_still)
        if self._is_looking or (now < self._due and not has_news):
            return False
        self._due = now + INTERVAL_S
        return True

    async def look(self, shell: OrderShell) -> None:
        """Follows the orders in the folder, and answers; an answer that the disk refuses is no reason to end a run."""
        self._is_looking = True
        try:
            orders, problems = await asyncio.to_thread(take, self._folder)
            for problem in problems:
                shell.say(problem)
            for file, order in orders:
                self._follow(file, order, shell)
            self._answer_pauses()
            answers, self._answers = self._answers, []
            for file, answer in answers:
                await asyncio.to_thread(reply, file, answer)
        except StorageError as error:
            shell.say(str(error))
        finally:
            self._is_looking = False

    def _follow(self, file: OrderFile, order: Order, shell: OrderShell) -> None:
        try:
            match order:
                case Pause(by):
                    self._pause(file, by, shell)
                case GoOn(by):
                    self._go_on(file, by, shell)
                case WriteCheckpoint(by):
                    shell.say(f"{by} asks for a checkpoint")
                    self._save(file, "", shell)
                case SendAway(by, who):
                    shell.perform(self._operator.send_away(who, by, shell.now()))
                    self._done(file, f"{who} was sent away, until the server ends")
                case Set(by, key, value):
                    sentence = self._office.change(self._operator, key, value, shell.now())
                    shell.say(f"{by} changed {sentence}")
                    self._save(file, f"{sentence}, from the next step on; ", shell)
                case Finish(by, steps):
                    self._finish(file, by, steps, shell)
                case Stop(by):
                    self._done(file, "the server stops")
                    shell.perform(self._operator.stop(by))
        except (ConfigError, ValueError) as error:
            self._answers.append((file, Answer(False, str(error))))

    def _pause(self, file: OrderFile, by: str, shell: OrderShell) -> None:
        if paused_by := self._operator.paused_by:
            self._done(file, f"{paused_by} had paused it before")
            return
        shell.perform(self._operator.pause(by))
        self._pausing.append(file)

    def _go_on(self, file: OrderFile, by: str, shell: OrderShell) -> None:
        if not self._operator.paused_by:
            self._done(file, "it was not paused")
            return
        for pausing in self._pausing:
            self._answers.append((pausing, Answer(False, f"{by} let the run go on before the open step had ended")))
        self._pausing.clear()
        shell.perform(self._operator.go_on(by, shell.now()))
        self._done(file, f"it goes on from step {self._office.step}")

    def _finish(self, file: OrderFile, by: str, more: int | None, shell: OrderShell) -> None:
        """Ends the run after a step: a run that may take no other step is complete, with all that follows from that."""
        if (end := self._operator.next_end) == 0:
            raise ValueError("finish: expected a run that has taken a step, got none; stop it instead")
        if more is None and not self._operator.is_at_work:
            more = 0
        last = self._office.finish(self._operator, end, more, shell.now())
        falls = f", to which the learning rate falls from step {end} on" if last > end else ""
        shell.say(f"{by} finishes the run at step {last}{falls}")
        self._done(file, f"it ends at step {last}{falls}")

    def _save(self, file: OrderFile, before: str, shell: OrderShell) -> None:
        """Writes a checkpoint as work, between two steps."""

        shell.perform([SaveCheckpoint()])
        shell.work(
            lambda: self._office.step, lambda step: self._done(file, f"{before}a checkpoint of step {step} was written")
        )

    def _answer_pauses(self) -> None:
        if self._operator.is_still:
            for file in self._pausing:
                self._done(file, f"paused at step {self._office.step}")
            self._pausing.clear()

    def _done(self, file: OrderFile, text: str) -> None:
        self._answers.append((file, Answer(True, text)))

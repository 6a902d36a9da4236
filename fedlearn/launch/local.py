"""Volunteers as processes of this machine, each started again when it dies."""

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import final

from fedlearn.system.restarts import Restarts
from fedlearn.system.signals import how_it_ended, stop_signals_call

WRONG_USAGE = 2
"""The exit code for wrong arguments, which a restart can't mend."""

_POLL_S = 0.2
_STOP_S = 3.0


@final
class _Child:
    """One place in the row: its process, and when it died its next beginning."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name, self.command = name, command
        self.restarts = Restarts()
        self.process: subprocess.Popen[bytes] | None = None
        self.began, self.begins = 0.0, -math.inf
        self.code: int | None = None
        """The exit code with which it ended for good; None before."""


@final
class Children:
    """Processes by their names; `run` lasts until all have ended for good, or a signal asks for it."""

    def __init__(
        self,
        commands: Sequence[tuple[str, Sequence[str]]],
        *,
        say: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children = [_Child(name, command) for name, command in commands]
        self._say, self._clock = say, clock
        self._stopped = threading.Event()

    def run(self) -> int:
        """Gives the exit code: 0 where all ended well, or were asked to."""
        with stop_signals_call(lambda _: self._stopped.set()):
            try:
                while self.look():
                    if self._stopped.wait(_POLL_S):
                        return 0
            finally:
                self.stop()
        return 0 if all(child.code in (0, None) for child in self._children) else 1

    def look(self) -> bool:
        """Starts the processes that are due and notes those that have ended; says whether any is left."""
        now = self._clock()
        for child in self._children:
            if child.process is not None:
                code = child.process.poll()
                if code is not None:
                    self._bury(child, code, now)
            elif child.code is None and now >= child.begins:
                self._start(child, now)
        return any(child.code is None for child in self._children)

    def stop(self) -> None:
        """Asks all to leave, and ends those that do not."""
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + _STOP_S
        for process in running:
            try:
                process.wait(timeout=max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, child: _Child, now: float) -> None:
        # Ctrl-C is for this process, which tells them.
        child.process = subprocess.Popen(
            child.command, stdin=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ)
        )
        child.began = now
        self._say(f"{child.name} is process {child.process.pid}")

    def _bury(self, child: _Child, code: int, now: float) -> None:
        child.process = None
        if code in (0, WRONG_USAGE):
            child.code = code
            return
        pause_s = child.restarts.died(now - child.began)
        if pause_s is None:
            child.code = code
            self._say(f"{child.name} {how_it_ended(code)} again and again; it is not started any more")
        else:
            child.begins = now + pause_s
            self._say(f"{child.name} {how_it_ended(code)}; it is started again in {pause_s:.0f} s")

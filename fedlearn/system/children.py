"""Child processes: started, started again after pauses that grow, and stopped."""

import math
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

AT_ONCE_S = 5.0
"""A process that lives shorter has not come to its work."""

SOUND_S = 60.0
"""After a process has lived longer, pauses begin with the shortest again."""

MOST_AT_ONCE = 5

WRONG_USAGE = 2
"""The exit code for wrong arguments, which a restart can't mend."""

NO_ANSWER = 3
"""The exit code of a volunteer that no server ever answered, within the time for which it was to wait for one."""


@final
class Restarts:
    """Counts the deaths of one process."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._n_at_once = 0

    def died(self, lived_s: float) -> float | None:
        """Seconds until it is to be started again; None where that is hopeless."""
        self._n_at_once = self._n_at_once + 1 if lived_s < AT_ONCE_S else 0
        if self._n_at_once == MOST_AT_ONCE:
            return None
        if lived_s >= SOUND_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s


class Death(NamedTuple):
    """The end of a child's process."""

    code: int
    """Exit code; minus the number of the signal that ended it."""
    pause_s: float | None
    """Seconds until the next start; None where the process died at once too often."""


@final
class Child:
    """A process that is kept alive; `look` starts it whenever it is due.

    Attributes:
        process: the process that runs at present, if one does.
    """

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]], *, clock: Callable[[], float]) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self._start, self._clock = start, clock
        self._restarts = Restarts()
        self._began, self._begins = 0.0, -math.inf

    def look(self) -> Death | None:
        """Starts the process where it is due; returns its death where it has ended since the last look.

        Raises:
            OSError: the process could not be started.
        """
        now = self._clock()
        if self.process is None:
            if now >= self._begins:
                self.process = self._start()
                self._began = now
            return None
        code = self.process.poll()
        if code is None:
            return None
        pause_s = self._restarts.died(now - self._began)
        self.process, self._begins = None, math.inf if pause_s is None else now + pause_s
        return Death(code, pause_s)


def stop_processes(
    processes: Iterable[subprocess.Popen[bytes] | None], *, patience_s: float, are_told: bool = False
) -> None:
    """Asks processes to end, waits for `patience_s` seconds in all, and kills those that are left.

    `are_told`: somebody else has asked them already.
    """
    running = [process for process in processes if process is not None]
    for process in running:
        if not are_told:
            process.terminate()
    until = time.monotonic() + patience_s
    for process in running:
        try:
            process.wait(timeout=max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

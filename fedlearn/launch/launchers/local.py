"""Volunteers as processes of this machine, each started again when it dies."""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

from fedlearn.launch.launcher import Launcher
from fedlearn.system.children import NO_ANSWER, WRONG_USAGE, Child, Death, stop_processes
from fedlearn.system.processes import program
from fedlearn.system.signals import how_it_ended, stop_signals_call

_POLL_S = 0.2
_STOP_S = 3.0


@final
class LocalProcesses(Launcher, frozen=True, kw_only=True):
    """Starts volunteers here, and again when they die."""

    def launch(self) -> int:
        arguments = self.join("--quiet", "--max-memory", f"{90 / self.count:.2f}%")
        names = [f"local-{number}" for number in range(1, self.count + 1)]
        commands = [(name, program([*arguments, "--name", name])) for name in names]
        return Children(commands, say=lambda line: print(line, flush=True)).run()


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
        self._children = [Child(name, partial(self._start, name, command), clock=clock) for name, command in commands]
        self._codes: dict[str, int] = {}
        """Exit codes of those that have ended for good, by their names."""
        self._say = say
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
        return 1 if any(self._codes.values()) else 0

    def look(self) -> bool:
        """Starts the processes that are due and notes those that have ended; says whether any is left."""
        for child in self._children:
            if child.name not in self._codes and (death := child.look()) is not None:
                self._note(child.name, death)
        return len(self._codes) < len(self._children)

    def stop(self) -> None:
        """Asks all to leave, and ends those that do not."""
        stop_processes((child.process for child in self._children), patience_s=_STOP_S)

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # Ctrl-C is for this process, which tells them.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._say(f"{name} is process {process.pid}")
        return process

    def _note(self, name: str, death: Death) -> None:
        how = how_it_ended(death.code)
        if death.code in (0, WRONG_USAGE, NO_ANSWER):
            self._codes[name] = death.code
        elif death.pause_s is None:
            self._codes[name] = death.code
            self._say(f"{name} {how} again and again; it is not started any more")
        else:
            self._say(f"{name} {how}; it is started again in {death.pause_s:.0f} s")

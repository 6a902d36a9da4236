"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from fedlearn.config import RunConfig
from fedlearn.server.restarts import Restarts
from fedlearn.storage.runs import RunFolder
from fedlearn.system.processes import step_back

NICENESS = 5
"""The server's own short bursts of work go first."""

TERMS = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Whoever serves a run has lent this machine to it already."""

STOP_S = 3.0


@final
class _Volunteer:
    """One of them: its process, and when it died its next beginning."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name, self.arguments = name, arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = Restarts()
        self.began = self.begins = 0.0


@final
class LocalVolunteers:
    """The processes of a run's own volunteers; what they print goes into the run folder.

    `server` is its address for them, `task` names the task's file where a volunteer needs it. Whoever
    dies is started again, later each time.

    Attributes:
        server: whom those call that are started from now on.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        *,
        server: str,
        task: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self._folder, self._clock = folder, clock
        self._volunteers: list[_Volunteer] = []
        settings = config.volunteers
        self.n_started = settings.volunteers
        for number in range(1, settings.volunteers + 1):
            name = f"local-{number}"
            arguments = ["--name", name, "--threads", str(settings.threads), "--once"]
            arguments += ["--identity", str(RunFolder(folder).local_identity)]
            arguments += ["--device", settings.device, *TERMS] + (["--task", task] if task else [])
            self._volunteers.append(_Volunteer(name, arguments))
            self._start(self._volunteers[-1])

    def problems(self) -> list[str]:
        """What to say about volunteers that died, once for each death; starts those again whose time has come."""
        now = self._clock()
        said: list[str] = []
        for volunteer in self._volunteers:
            if volunteer.process is None:
                if now >= volunteer.begins:
                    self._start(volunteer)
            elif (code := volunteer.process.poll()) is not None:
                said.append(self._bury(volunteer, code, now))
        return said

    def stop(self) -> None:
        """Waits for them to go, then ends those that did not."""
        for process in [volunteer.process for volunteer in self._volunteers if volunteer.process is not None]:
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, volunteer: _Volunteer) -> None:
        with open(self._folder / f"{volunteer.name}.log", "ab") as log:
            volunteer.process = subprocess.Popen(
                [sys.executable, "-m", "fedlearn", "join", "--server", self.server, *volunteer.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the server, which tells them
                env={**os.environ, "no_proxy": "*"},  # the server is this machine
            )
        step_back(volunteer.process.pid, NICENESS)
        volunteer.began = self._clock()

    def _bury(self, volunteer: _Volunteer, code: int, now: float) -> str:
        pause_s = volunteer.restarts.died(now - volunteer.began)
        volunteer.process, volunteer.begins = None, math.inf if pause_s is None else now + pause_s
        hope = "it is not started again" if pause_s is None else f"it is started again in {pause_s:.0f} s"
        return (
            f"the local volunteer {volunteer.name} ended with exit code {code}; see {volunteer.name}.log in the run "
            f"folder; {hope}"
        )

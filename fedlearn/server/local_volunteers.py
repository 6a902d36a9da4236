"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import math
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from fedlearn.config import RunConfig
from fedlearn.storage.runs import RunFolder
from fedlearn.system.processes import program, step_back
from fedlearn.system.restarts import Restarts
from fedlearn.terminal.guards import printable

NICENESS = 5
"""Added to the volunteers' niceness, so that the server's own short bursts of work go first."""

TERMS = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Options for volunteers on a machine that its owner has already lent by serving a run."""

STOP_S = 3.0

LAST_BYTES = 400
"""Bytes of a log that are looked at for its last line."""


@final
class _Volunteer:
    """One volunteer: its process, or the time of its next start when it has died."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name, self.arguments = name, arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = Restarts()
        self.began = self.begins = 0.0


@final
class LocalVolunteers:
    """The processes of a run's own volunteers; what they print goes into files in the run folder.

    `task` names the task's file where volunteers need it. A volunteer that dies is started again, after a pause that
    grows.

    Attributes:
        server: the address that volunteers are given when they start.
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
            arguments += ["--direct", "127.0.0.1:0"] if config.server.direct else []
            self._volunteers.append(_Volunteer(name, arguments))
            self._start(self._volunteers[-1])

    def problems(self) -> list[str]:
        """Texts about volunteers that died, one for each death; also starts those whose pause is over."""
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
        """Waits for them to end, then kills those that did not."""
        for process in [volunteer.process for volunteer in self._volunteers if volunteer.process is not None]:
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, volunteer: _Volunteer) -> None:
        with open(self._folder / f"{volunteer.name}.log", "ab") as log:
            volunteer.process = subprocess.Popen(
                program(["join", "--server", self.server, *volunteer.arguments]),
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
        said = _last_line(self._folder / f"{volunteer.name}.log") if code > 0 else ""  # who was killed had no last word
        return (
            f"the local volunteer {volunteer.name} ended with exit code {code}{f': {said}' if said else ''}; see "
            f"{volunteer.name}.log in the run folder; {hope}"
        )


def _last_line(log: Path) -> str:
    """The last line of what a volunteer printed, in short; empty where it printed nothing."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - LAST_BYTES, 0))
        lines = file.read().decode(errors="replace").split("\n")
    return printable(next((line.strip() for line in reversed(lines) if line.strip()), ""))

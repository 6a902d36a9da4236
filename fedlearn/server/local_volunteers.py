"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, final

from fedlearn.config import RunConfig
from fedlearn.storage.runs import RunFolder
from fedlearn.system.children import Child, Death, stop_processes
from fedlearn.system.processes import program, step_back
from fedlearn.system.waiting import WaitingProcess
from fedlearn.terminal.guards import printable

NICENESS = 5
"""Added to the volunteers' niceness, so that the server's own short bursts of work go first."""

TERMS = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Options for volunteers on a machine that its owner has already lent by serving a run."""

STOP_S = 3.0

LAST_BYTES = 400
"""Bytes of a log that are searched for its last line."""


def volunteer_ahead() -> WaitingProcess:
    """Starts a volunteer that imports PyTorch, which takes seconds, while its server prepares the run."""
    waiting = WaitingProcess.start("join", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_surroundings())
    step_back(waiting.process.pid, NICENESS)
    return waiting


@final
class LocalVolunteers:
    """The processes of a run's own volunteers; what they print goes into files in the run folder.

    `task` names the task's file where volunteers need it; `ahead` is a volunteer that was started before its run. A
    volunteer that dies is started again, after a pause that grows.

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
        ahead: WaitingProcess | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self._folder, self._ahead = folder, ahead
        self._volunteers: list[Child] = []
        settings = config.volunteers
        self.n_started = settings.volunteers
        for number in range(1, settings.volunteers + 1):
            name = f"local-{number}"
            arguments = ["--name", name, "--threads", str(settings.threads), "--once"]
            arguments += ["--identity", str(RunFolder(folder).local_identity)]
            arguments += ["--device", settings.device, *TERMS] + (["--task", task] if task else [])
            arguments += ["--direct", "127.0.0.1:0"] if config.server.direct else []
            self._volunteers.append(Child(name, partial(self._start, name, arguments), clock=clock))
            self._volunteers[-1].look()

    def problems(self) -> list[str]:
        """Texts about volunteers that died, one for each death; also starts those whose pause is over."""
        deaths = [(volunteer.name, volunteer.look()) for volunteer in self._volunteers]
        return [self._in_words(name, death) for name, death in deaths if death is not None]

    def stop(self) -> None:
        """Waits for them to end, then kills those that did not."""
        stop_processes((volunteer.process for volunteer in self._volunteers), patience_s=STOP_S, are_told=True)

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        file, arguments = self._folder / f"{name}.log", ["join", "--server", self.server, *arguments]
        ahead, self._ahead = self._ahead, None
        with file.open("ab") as log:
            if ahead is not None and ahead.process.poll() is None:
                process = ahead.begin(arguments, log=str(file))
                ahead.close()
                return process
            process = subprocess.Popen(
                program(arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_surroundings()
            )
        step_back(process.pid, NICENESS)
        return process

    def _in_words(self, name: str, death: Death) -> str:
        hope = "it is not started again" if death.pause_s is None else f"it is started again in {death.pause_s:.0f} s"
        # Who was killed had no last word.
        said = _last_line(self._folder / f"{name}.log") if death.code > 0 else ""
        return (
            f"the local volunteer {name} ended with exit code {death.code}{f': {said}' if said else ''}; see "
            f"{name}.log in the run folder; {hope}"
        )


def _surroundings() -> dict[str, Any]:
    """What the process of a volunteer is started with."""
    return {
        "start_new_session": True,  # Ctrl-C is for the server, which tells them
        "env": {**os.environ, "no_proxy": "*"},  # the server is this machine
    }


def _last_line(log: Path) -> str:
    """The last line of what a volunteer printed, in short; empty where it printed nothing."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - LAST_BYTES, 0))
        lines = file.read().decode(errors="replace").split("\n")
    return printable(next((line.strip() for line in reversed(lines) if line.strip()), ""))

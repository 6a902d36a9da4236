"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import final

from fedlearn.config import RunConfig
from fedlearn.storage.runs import RunFolder

NICENESS = 5
"""The server's own short bursts of work go first."""

STOP_S = 3.0


@final
class LocalVolunteers:
    """The processes of a run's own volunteers; what they print goes into the run folder.

    `server` is its address for them, `task` names the task's file where a volunteer needs it.
    """

    def __init__(self, folder: Path, config: RunConfig, *, server: str, task: str = "") -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        settings = config.volunteers
        for number in range(1, settings.volunteers + 1):
            name = f"local-{number}"
            arguments = ["--server", server, "--name", name, "--threads", str(settings.threads), "--once"]
            arguments += ["--identity", str(RunFolder(folder).local_identity)]
            arguments += ["--device", settings.device] + (["--task", task] if task else [])
            with open(folder / f"{name}.log", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fedlearn", "join", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the server, which tells them
                    env={**os.environ, "no_proxy": "*"},  # the server is this machine
                )
            with suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            self._processes[name] = process

    def problems(self) -> list[str]:
        """What to say about volunteers that ended on their own; each is said once."""
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        return [
            f"the local volunteer {name} ended with exit code {self._processes.pop(name).returncode}; "
            f"see {name}.log in the run folder"
            for name in ended
        ]

    def stop(self) -> None:
        """Waits for them to go, then ends those that did not."""
        for process in self._processes.values():
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import final

from fedlearn.config import RunConfig

NICENESS = 5
"""The server's own short bursts of work go first."""

STOP_S = 3.0

ANY_ADDRESS = ("0.0.0.0", "::", "")
"""Hosts that listen on every address, the loopback's among them."""


@final
class LocalVolunteers:
    """The processes of a run's own volunteers; what they print goes into the run folder.

    `task` names the task's file where a volunteer needs it.
    """

    def __init__(self, folder: Path, config: RunConfig, *, port: int, task: str = "") -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        settings = config.volunteers
        host = "127.0.0.1" if config.server.host in ANY_ADDRESS else config.server.host
        for number in range(1, settings.volunteers + 1):
            name = f"local-{number}"
            arguments = ["--server", f"{host}:{port}", "--name", name, "--threads", str(settings.threads), "--once"]
            arguments += ["--device", settings.device] + (["--task", task] if task else [])
            with open(folder / f"{name}.log", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fedlearn", "join", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the server, which tells them
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

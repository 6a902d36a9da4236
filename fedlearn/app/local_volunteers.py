"""Volunteer processes that the server starts on its own machine, so that training begins at once."""

import os
import subprocess
import sys
from pathlib import Path
from typing import final

NICENESS = 5
"""The server's own short bursts of work go first."""

STOP_S = 3.0

ANY_ADDRESS = ("0.0.0.0", "::", "")
"""Hosts that listen on every address, the loopback's among them."""


@final
class LocalVolunteers:
    """`count` processes that join the server; what they print goes into the run folder."""

    def __init__(self, folder: Path, *, host: str, port: int, count: int, threads: int) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        host = "127.0.0.1" if host in ANY_ADDRESS else host
        for number in range(1, count + 1):
            name = f"local-{number}"
            arguments = ["join", "--server", f"{host}:{port}", "--name", name, "--threads", str(threads), "--once"]
            with open(folder / f"{name}.log", "ab") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "fedlearn", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the server, which tells them
                    preexec_fn=_be_nice,
                )

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


def _be_nice() -> None:
    os.nice(NICENESS)

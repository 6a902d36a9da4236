"""Volunteers by the dozen, each forked within a few milliseconds."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from tests.end_to_end.forking import ROOT, Forked

JOINING = ["--task", "fit.py:task", "--threads", "1", "--priority", "normal"]
LIAR = Path(__file__).parent / "liar.py"


@final
class Hatchery:
    """Starts volunteers and sends them signals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hatched: dict[int, subprocess.Popen[str]] = {}

    def hatch(self, name: str, address: str, *arguments: str, lies: bool = False, **environ: str) -> int:
        """A volunteer with an identity of its own; what it says is appended to NAME.out. Gives its process."""
        script = [LIAR, "0"] if lies else [ROOT / "client.py"]
        command = [sys.executable, *map(str, script), "--server", address, *JOINING, "--name", name, *arguments]
        own = {"OPENBLAS_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(self.folder / f"config of {name}")}
        with open(self.folder / f"{name}.out", "a") as said:
            process = Forked(command, cwd=self.folder, stdout=said, stderr=said, env=os.environ | own | environ)
        self._hatched[process.pid] = process
        return process.pid

    def send(self, process: int, number: signal.Signals) -> bool:
        """Whether it was there to take the signal."""
        is_there = self._hatched[process].poll() is None
        self._hatched[process].send_signal(number)
        return is_there

    def close(self) -> None:
        """Ends all of them."""
        for process in self._hatched.values():
            process.kill()
        for process in self._hatched.values():
            process.wait()


@contextmanager
def hatching(folder: Path) -> Iterator[Hatchery]:
    """A hatchery, ended with all its volunteers."""
    hatchery = Hatchery(folder)
    try:
        yield hatchery
    finally:
        hatchery.close()

"""The process that serves a job's run: started by this hub, or found alive by it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self, final

import msgspec
import psutil

from fedlearn.hub.jobs.records import Process
from fedlearn.server.supervision import Serving
from fedlearn.system.waiting import WaitingProcess

MAX_REPORT_BYTES = 64 * 1024

GONE = 256
"""Stands for the exit code of a process that another hub started, which can't be known."""


@final
class ServedNext:
    """A process that has imported what a server needs, and waits for the job that it serves."""

    def __init__(self) -> None:
        """Starts the process.

        Raises:
            OSError: it could not be started.
        """
        self._reading, self._writing = os.pipe()
        try:
            self._waiting = WaitingProcess.start(
                "serve",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._writing,),
                start_new_session=True,  # Ctrl-C is for the hub, which tells them
                # Settings of the hub's own are not the run's; its lines come as they are printed.
                env={k: v for k, v in os.environ.items() if not k.startswith("FEDLEARN_")} | {"PYTHONUNBUFFERED": "1"},
            )
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(self._writing)
        os.set_blocking(self._reading, False)

    @property
    def is_alive(self) -> bool:
        return self._waiting.process.poll() is None

    def begin(self, arguments: Sequence[str], *, log: Path) -> "Served":
        """Has it run `fedlearn` with arguments; what it prints goes into the log."""
        child = self._waiting.begin([*arguments, "--tell", str(self._writing)], log=str(log))
        self._waiting.close()
        return Served(Process(child.pid, _created(child.pid) or 0.0), child, self._reading)

    def close(self) -> None:
        """Ends the process, which nobody needs any more."""
        self._waiting.close()
        os.close(self._reading)
        self._waiting.process.wait()


@final
class Served:
    """One process; `poll` gives its exit code once it has ended, None meanwhile, or GONE."""

    def __init__(self, process: Process, child: subprocess.Popen[bytes] | None, reading: int | None) -> None:
        self.process = process
        self._child, self._reading = child, reading
        self._report = b""

    @classmethod
    def find(cls, process: Process) -> Self | None:
        """The process of a record, if it is still alive."""
        return cls(process, None, None) if _created(process.pid) == process.created else None

    def report(self) -> Serving | None:
        """The run that the process serves and the port at which it listens, given once, as soon as it reports them."""
        if self._reading is None:
            return None
        try:
            piece = os.read(self._reading, MAX_REPORT_BYTES)
        except BlockingIOError:
            return None
        self._report += piece
        if piece and len(self._report) < MAX_REPORT_BYTES:
            return None
        os.close(self._reading)
        self._reading = None
        try:
            return msgspec.json.decode(self._report, type=Serving)
        except msgspec.DecodeError:
            return None  # it died first

    def poll(self) -> int | None:
        if self._child is not None:
            return self._child.poll()
        return None if _created(self.process.pid) == self.process.created else GONE

    def terminate(self) -> None:
        """Asks the process to end, as Ctrl-C does."""
        if self._child is not None:
            self._child.terminate()
        elif self.poll() is None:
            psutil.Process(self.process.pid).terminate()

    def kill(self) -> None:
        """Ends it at once."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        elif self.poll() is None:
            psutil.Process(self.process.pid).kill()


def _created(pid: int) -> float | None:
    """The time at which the process began; None where it does not run."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None

"""`status.json`, which shows a run to viewers, written by the server that has the run."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import final

import msgspec

from fedlearn.callback import Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import is_alive, read_status, write_status


def live_status(folder: RunFolder) -> RunStatus | None:
    """The status that the server which has the run reports now; None where no server has it."""
    status = read_status(folder.status, RunStatus)
    return status if status is not None and is_live(status) else None


def is_live(status: RunStatus) -> bool:
    """Whether the server that wrote this status still has the run."""
    return status.state != "ended" and is_alive(status.pid, status.time, now=time.time())


def complete_ended(path: Path, figures: Mapping[str, float], sample: str, say: Callable[[str], None]) -> None:
    """Adds what a last look at the weights found to the status of a run that has ended; calls `say` where the disk
    refuses."""
    if (status := read_status(path, RunStatus)) is not None and status.state == "ended":
        status = msgspec.structs.replace(status, validation=dict(figures), sample=sample or status.sample)
        if problem := _write(path, status):
            say(problem)


def _write(path: Path, status: RunStatus) -> str:
    try:
        write_status(path, status)
    except (StorageError, ValueError) as error:  # a model may write what cannot be encoded
        return f"{error}; until then viewers see what was"
    return ""


@final
class StatusFile(Callback):
    """Replaces the file on a thread of its own; calls `say` where the disk refuses, which does not end the run."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="status")
        self._writing: Future[str] | None = None
        self._problem = ""

    def on_status(self, status: RunStatus) -> None:
        """Drops a status that comes while the one before is being written, unless it is the last one."""
        is_over = status.state == "ended"
        if self._writing is not None and (is_over or self._writing.done()):
            self._settle(self._writing)
        if self._writing is None:
            self._writing = self._writer.submit(_write, self._path, status)

    def on_end(self, reason: str) -> None:  # noqa: ARG002
        if self._writing is not None:
            self._settle(self._writing)
        self._writer.shutdown()

    def _settle(self, writing: "Future[str]") -> None:
        """Reports a new problem."""
        self._writing = None
        before, self._problem = self._problem, writing.result()
        if self._problem and self._problem != before:
            self._say(self._problem)

"""What viewers of a run see of it: `status.json`, kept by the server that has the run."""

import os
import threading
import time
from pathlib import Path
from typing import final

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.server.examination import Examination
from fedlearn.storage.durable import StorageError
from fedlearn.storage.metrics import StepMetrics
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import is_alive, read_status, write_status

INTERVAL_S = 1.0

Traffic = tuple[int, int]
"""Bytes in and out since the start."""


def live_status(folder: RunFolder) -> RunStatus | None:
    """Where a run stands that a server has just now, by what it says itself; None where none does."""
    status = read_status(folder.status, RunStatus)
    if status is None or status.state == "ended" or not is_alive(status.pid, status.time, now=time.time()):
        return None
    return status


@final
class View:
    """A run's status file, with what is known of the run beside its coordinator; without a path nobody sees it."""

    def __init__(self, path: Path | None, unit: str) -> None:
        self._path = path
        self._unit = unit
        self._due = 0.0
        self._last: StepMetrics | None = None
        self._examination = Examination({}, "")
        self._measured: tuple[float, Traffic] | None = None
        self._rates = (0.0, 0.0)
        self._writing = threading.Lock()
        self._is_over = False
        self._problem = ""

    def stepped(self, metrics: StepMetrics) -> None:
        """A step is over."""
        self._last = metrics

    def examined(self, found: Examination) -> None:
        """The model was looked at; of a look without a sample the sample before is kept."""
        self._examination = Examination(found.figures, found.sample or self._examination.sample)

    def is_due(self, now: float) -> bool:
        """Whether it is time to write; asks for the next time after another interval."""
        if self._path is None or now < self._due or self._writing.locked():
            return False
        self._due = now + INTERVAL_S
        return True

    def completed(self, status: RunStatus, traffic: Traffic, *, now: float, ended: str | None = None) -> RunStatus:
        """What the coordinator knows, with the rest; `ended` is the reason why the run has."""
        self._measure(traffic, now)
        last = self._last
        if ended is not None:
            status = msgspec.structs.replace(status, state="ended", reason=ended, open_step=None, members_per_s=0.0)
        return msgspec.structs.replace(
            status,
            pid=os.getpid(),
            time=time.time(),
            unit=self._unit,
            loss=last.loss if last is not None else None,
            shown=last.shown if last is not None else {},
            work_per_s=last.work_per_s if last is not None and status.state == "running" else 0.0,
            bytes_in_per_s=self._rates[0],
            bytes_out_per_s=self._rates[1],
            validation=dict(self._examination.figures),
            sample=self._examination.sample,
        )

    def write(self, status: RunStatus) -> str:
        """Replaces the file; gives a new problem, which is no reason to end a run. May be called from any thread."""
        with self._writing:
            if self._path is None or self._is_over:
                return ""
            self._is_over = status.state == "ended"
            before, self._problem = self._problem, ""
            try:
                write_status(self._path, status)
            except (StorageError, ValueError) as error:  # a model may write what is no text
                self._problem = f"{error}; until then viewers see what was"
            return self._problem if self._problem != before else ""

    def _measure(self, traffic: Traffic, now: float) -> None:
        since, before = self._measured or (now, traffic)
        self._measured = (now, traffic)
        duration_s = max(now - since, 1e-9)
        self._rates = ((traffic[0] - before[0]) / duration_s, (traffic[1] - before[1]) / duration_s)

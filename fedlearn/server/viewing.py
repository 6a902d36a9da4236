"""The state of a run, with what the coordinator does not know: the last figures, traffic, and sample."""

import os
import time
from collections.abc import Mapping
from typing import final

import msgspec

from fedlearn.callback import Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.logs.metrics import StepMetrics

INTERVAL_S = 1.0

Traffic = tuple[int, int]
"""Bytes in and out since the start."""


@final
class View(Callback):
    """Keeps the facts that complete a status, and the time of the next one."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._due = 0.0
        self._last: StepMetrics | None = None
        self._figures: dict[str, float | None] = {}
        self._sample = ""
        self._measured: tuple[float, Traffic] | None = None
        self._rates = (0.0, 0.0)

    def on_step(self, metrics: StepMetrics) -> None:
        self._last = metrics

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:  # noqa: ARG002
        """Keeps the last sample where there is no new one."""
        self._figures, self._sample = dict(figures), sample or self._sample

    def is_due(self, now: float) -> bool:
        """Checks if a status is due, and if so, sets the time of the next one."""
        if now < self._due:
            return False
        self._due = now + INTERVAL_S
        return True

    def completed(self, status: RunStatus, traffic: Traffic, *, now: float, ended: str | None = None) -> RunStatus:
        """Completes a status with all that the coordinator does not know; `ended` is the reason why the run has ended,
        if it has."""
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
            figures=last.figures if last is not None else {},
            work_per_s=last.work_per_s if last is not None and status.state == "running" else 0.0,
            bytes_in_per_s=self._rates[0],
            bytes_out_per_s=self._rates[1],
            validation=self._figures,
            sample=self._sample,
        )

    def _measure(self, traffic: Traffic, now: float) -> None:
        since, before = self._measured or (now, traffic)
        self._measured = (now, traffic)
        duration_s = max(now - since, 1e-9)
        self._rates = ((traffic[0] - before[0]) / duration_s, (traffic[1] - before[1]) / duration_s)

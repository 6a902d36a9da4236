"""A line of progress that is redrawn in place, in a notebook or in a terminal."""

import sys
import time
from collections.abc import Mapping
from typing import TextIO, final

from fedlearn.callback import Begun, Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.terminal import format_count, format_duration, format_figures
from fedlearn.terminal.redrawn_line import RedrawnLine

INTERVAL_S = 0.2


@final
class ProgressLine(Callback):
    """Writes to a stream, by default stdout."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._line = RedrawnLine(stream or sys.stdout)
        self._unit = ""
        self._status: RunStatus | None = None
        self._last: StepMetrics | None = None
        self._figures: dict[str, float] = {}
        self._due = 0.0
        self._began = (0.0, 0)

    def on_begin(self, begun: Begun) -> None:
        self._unit = begun.unit
        self._began = (time.monotonic(), begun.step)

    def on_step(self, metrics: StepMetrics) -> None:
        self._last = metrics
        now = time.monotonic()
        if now >= self._due:
            self._due = now + INTERVAL_S
            self._line.show(self._said(now))

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:  # noqa: ARG002
        self._figures = dict(figures)

    def on_status(self, status: RunStatus) -> None:
        self._status = status

    def on_end(self, reason: str) -> None:
        said = self._said(time.monotonic())
        self._line.show(f"{said}  {reason}" if said else reason)
        self._line.keep()

    def _said(self, now: float) -> str:
        metrics = self._last
        if metrics is None:
            return ""
        of = f"/{self._status.steps}" if self._status is not None and self._status.steps else ""
        parts = [f"step {metrics.step + 1}{of}", format_figures(metrics.shown) or "no loss"]
        parts += [f"held out {format_figures(self._figures)}"] if self._figures else []
        parts.append(f"{format_count(metrics.work_per_s)} trial-{self._unit}/s")
        left_s = self._left_s(metrics.step + 1, now)
        return "  ".join([*parts, f"{format_duration(left_s)} left"] if left_s else parts)

    def _left_s(self, step: int, now: float) -> float | None:
        """Seconds to the nearer end: of training time, or of steps at the pace so far."""
        status, (began, first) = self._status, self._began
        if status is None:
            return None
        by_time = [status.run_left_s] if status.run_left_s is not None else []
        by_steps = [(status.steps - step) * (now - began) / (step - first)] if status.steps and step > first else []
        return min([*by_time, *by_steps], default=None)


def is_watched() -> bool:
    """True where somebody sees what this process prints while it does: in a notebook, or in a terminal."""
    return "ipykernel" in sys.modules or (sys.stdout is not None and sys.stdout.isatty())

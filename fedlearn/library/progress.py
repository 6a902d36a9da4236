"""A line of progress that is redrawn in place, in a notebook or in a terminal."""

import sys
import time
from collections.abc import Mapping
from typing import TextIO, final

from fedlearn.callback import Begun, Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.metrics import StepMetrics
from fedlearn.terminal import escape, format_count, format_duration, format_figures

INTERVAL_S = 0.2


@final
class Progress(Callback):
    """Writes to a stream, where a carriage return takes the line back to its beginning."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._unit = ""
        self._status: RunStatus | None = None
        self._last: StepMetrics | None = None
        self._figures: dict[str, float] = {}
        self._due = 0.0
        self._began = (0.0, 0)
        self._width = 0

    def on_begin(self, begun: Begun) -> None:
        self._unit = begun.unit
        self._began = (time.monotonic(), begun.step)

    def on_step(self, metrics: StepMetrics) -> None:
        self._last = metrics
        now = time.monotonic()
        if now >= self._due:
            self._due = now + INTERVAL_S
            self._show(self._line(now))

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:  # noqa: ARG002
        self._figures = dict(figures)

    def on_status(self, status: RunStatus) -> None:
        self._status = status

    def on_end(self, reason: str) -> None:
        line = self._line(time.monotonic())
        self._show(f"{line}  {reason}" if line else reason)
        self._stream.write("\n")
        self._stream.flush()

    def _line(self, now: float) -> str:
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

    def _show(self, line: str) -> None:
        line = escape(line)
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)


def is_watched() -> bool:
    """Whether somebody sees what this process prints while it does: in a notebook, or in a terminal."""
    return "ipykernel" in sys.modules or (sys.stdout is not None and sys.stdout.isatty())

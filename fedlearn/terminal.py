"""What the person at the terminal sees: one status line that renews itself, and lines that stay."""

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TextIO, final

from fedlearn.callback import Begun, Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.metrics import StepMetrics

STATUS_INTERVAL_S = 0.2
LINE_INTERVAL_S = 1.0
"""Without a terminal (a file, a pipe), and for lines that stay: at most one line of figures in this time."""

KEPT_LINE_INTERVAL_S = 10.0
"""On a terminal a line of figures stays this often, so that the way down can be read."""

LONG_STEP_S = 1.0
"""Once a step takes longer, the status line says when the next one begins at the latest."""


@final
class Terminal(Callback):
    """Writes to a stream; on a terminal the last line shows where the run stands."""

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._unit = "tokens"
        # A process without a terminal may have no stdout at all, whatever its type says.
        self._stream: TextIO | None = stream if stream is not None else sys.stdout
        self._is_terminal = self._stream is not None and self._stream.isatty()
        self._last: StepMetrics | None = None
        self._status: RunStatus | None = None
        self._stepped_at = 0.0
        self._unsaid = ""
        self._status_due = 0.0
        self._line_due = 0.0
        self._has_status = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{self._clear()}{escape(text)}\n")

    # ---- what a run tells

    def on_begin(self, begun: Begun) -> None:
        self._unit = begun.unit

    def on_join(self, name: str) -> None:
        self.say(f"{name} joined")

    def on_leave(self, name: str, reason: str) -> None:
        self.say(f"{name} left: {reason}")

    def on_notice(self, text: str) -> None:
        self.say(text)

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:  # noqa: ARG002
        sentences = [f"validation {format_figures(figures)}"] if figures else []
        sentences += [f"it writes: {sample}"] if sample else []
        if sentences:
            self.say("; ".join(sentences))

    def on_status(self, status: RunStatus) -> None:
        self._status = status
        self._renew()

    def on_step(self, metrics: StepMetrics) -> None:
        """The figures of a step; not every step gets its line when steps are short."""
        now = time.monotonic()
        self._last, self._stepped_at = metrics, now
        line = self._line(metrics)
        if now >= self._line_due:
            self._line_due = now + (KEPT_LINE_INTERVAL_S if self._is_terminal else LINE_INTERVAL_S)
            self._unsaid = ""
            self.say(line)
        else:
            self._unsaid = line
            self._renew()

    def on_end(self, reason: str) -> None:  # noqa: ARG002 (whoever has the run says it, with what to do next)
        """Takes the status line away; the figures of the last step stay, in a line if they had none."""
        if self._unsaid:
            self.say(self._unsaid)
        else:
            self._write(self._clear())
        self._last, self._unsaid = None, ""

    def _renew(self) -> None:
        """Renews the status line: on a terminal, and not more often than eyes follow."""
        now = time.monotonic()
        if self._last is None or not self._is_terminal or now < self._status_due:
            return
        self._status_due = now + STATUS_INTERVAL_S
        line = self._line(self._last)
        step = self._status.open_step if self._status is not None else None
        if step is not None and now >= self._stepped_at + LONG_STEP_S:
            line += f"  next in {step.left_s:.0f} s"
        # A line that fills the terminal wraps, and can't be cleared as one.
        line = line[: max(shutil.get_terminal_size().columns - 1, 0)]
        self._write(self._clear() + line)
        self._has_status = True

    def _line(self, metrics: StepMetrics) -> str:
        return format_step(metrics, self._status.run_left_s if self._status is not None else None, self._unit)

    def _clear(self) -> str:
        """What takes the status line away."""
        sequence = "\r\033[K" if self._has_status else ""
        self._has_status = False
        return sequence

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # nobody reads it any more, which is no reason to stop
            self._stream = None


def escape(text: str) -> str:
    """The text in one line, with escapes such as \\x1b for all that a terminal would obey rather than show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """The text with its lines, and escapes for all else that a terminal would obey."""
    return "\n".join(escape(line) for line in text.split("\n"))


def format_step(metrics: StepMetrics, run_left_s: float | None, unit: str) -> str:
    """One line: step, loss, volunteers, speed in units of work, and the training time left where it is limited."""
    loss = format_figures(metrics.shown) if metrics.shown else "no loss"
    volunteers = f"{metrics.volunteers} volunteer{'' if metrics.volunteers == 1 else 's'}"
    left = f"  {format_duration(run_left_s)} left" if run_left_s is not None else ""
    speed = format_count(metrics.work_per_s)
    return f"step {metrics.step:>5}  {loss}  {volunteers}  {speed:>5} trial-{unit}/s{left}"


def format_figures(figures: Mapping[str, float]) -> str:
    """Figures by name, the rates with their unit behind them: 2.345 bits/character, accuracy 0.912."""
    return ", ".join(
        f"{value:.3f} {name.replace('_per_', '/').replace('_', ' ')}"
        if "_per_" in name
        else f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in figures.items()
    )


def format_count(number: float) -> str:
    """A number with three digits and a unit prefix: 12.3k, 4.56M."""
    for limit, divisor, suffix in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if number < limit:
            return f"{number / divisor:.3g}{suffix}"
    return f"{number / 1e9:.3g}G"


def format_duration(seconds: float) -> str:
    """A duration in its largest whole unit: 42 s, 5 min, 3 h, 2 d."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"

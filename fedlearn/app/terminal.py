"""What the person at the terminal sees: one status line that renews itself, and lines that stay."""

import sys
import time
from typing import TextIO, final

from fedlearn.coordination.plan import Status
from fedlearn.storage.metrics import StepMetrics

STATUS_INTERVAL_S = 0.2
LINE_INTERVAL_S = 1.0
"""Without a terminal (a file, a pipe), and for lines that stay: at most one line of figures in this time."""

KEPT_LINE_INTERVAL_S = 10.0
"""On a terminal a line of figures stays this often, so that the way down can be read."""


@final
class Terminal:
    """Writes to a stream; on a terminal the last line shows where the run stands."""

    def __init__(self, *, tokens_per_member: int = 1, stream: TextIO | None = None) -> None:
        self._tokens_per_member = tokens_per_member
        self._stream = stream if stream is not None else sys.stdout
        self._is_terminal = self._stream.isatty()
        self._last: StepMetrics | None = None
        self._status_due = 0.0
        self._line_due = 0.0
        self._has_status = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def step(self, metrics: StepMetrics, status: Status) -> None:
        """The figures of a step; not every step gets its line when steps are short."""
        now = time.monotonic()
        self._last = metrics
        line = format_step(metrics, status, tokens_per_member=self._tokens_per_member)
        if now >= self._line_due:
            self._line_due = now + (KEPT_LINE_INTERVAL_S if self._is_terminal else LINE_INTERVAL_S)
            self.say(line)
        else:
            self.tick(status)

    def tick(self, status: Status) -> None:
        """Renews the status line: on a terminal, and not more often than eyes follow."""
        now = time.monotonic()
        if self._last is None or not self._is_terminal or now < self._status_due:
            return
        self._status_due = now + STATUS_INTERVAL_S
        self._clear()
        line = format_step(self._last, status, tokens_per_member=self._tokens_per_member)
        print(line, end="", file=self._stream, flush=True)
        self._has_status = True

    def _clear(self) -> None:
        if self._has_status:
            print("\r\033[K", end="", file=self._stream)
            self._has_status = False


def format_step(metrics: StepMetrics, status: Status, *, tokens_per_member: int) -> str:
    """One line: step, loss, volunteers, speed, and the time left in the step that is open now."""
    bits = metrics.bits_per_character
    loss = "no loss" if bits is None else f"{bits:.3f} bits/character"
    volunteers = f"{metrics.volunteers} volunteer{'' if metrics.volunteers == 1 else 's'}"
    members_per_s = format_count(metrics.trial_tokens_per_s / tokens_per_member)
    return (
        f"step {metrics.step:>5}  {loss}  {volunteers}  {members_per_s:>5} members/s  "
        f"{format_count(metrics.trial_tokens_per_s):>5} trial-tokens/s  {status.time_left_s:.1f} s left"
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

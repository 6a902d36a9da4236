"""Progress of what takes long: a bar with rate and time left on a terminal, elsewhere a line now and then.

`rich.progress` draws for terminals only: it shows work that is over at once, writes nothing into a file, and asks for
ipywidgets in a notebook. So only the drawing is rich's here.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, final

from fedlearn.terminal.figures import format_bytes, format_count, format_duration
from fedlearn.terminal.guards import escape
from fedlearn.terminal.redrawn_line import RedrawnLine
from fedlearn.terminal.screen import Screen, mode_on

if TYPE_CHECKING:
    from rich.text import Text

APPEARS_S = 0.5
"""Seconds after which work is shown; shorter work gets no bar."""

RENEWED_S = 0.2
LINE_INTERVAL_S = 5.0
BAR_COLUMNS = 30
LEAST_BAR_COLUMNS = 8


@final
class Bars:
    """Shows work on a stream: stderr, since stdout may carry a result."""

    def __init__(
        self, *, stream: TextIO | None = None, plain: bool = False, quiet: bool = False, redrawn: bool = False
    ) -> None:
        """`redrawn`: in one line of text that is written again and again, as notebooks show it too."""
        stream = stream if stream is not None else sys.stderr
        self._stream, self._mode = stream, mode_on(stream, plain=plain, quiet=quiet)
        self._is_redrawn = redrawn

    @contextmanager
    def bar(self, what: str, unit: str = "", *, total: float | None = None) -> Iterator["Bar"]:
        """A bar for the time of this context. `unit` is what is counted: steps, tokens, bytes."""
        bar = Bar(what, unit, total)
        if self._mode == "quiet":
            yield bar
            return
        over = threading.Event()
        showing = threading.Thread(target=self._show, args=(bar, over), daemon=True)
        showing.start()
        try:
            yield bar
        finally:
            over.set()
            showing.join()

    def _show(self, bar: "Bar", over: threading.Event) -> None:
        """Draws the bar on a thread of its own, since the work may be a single call that takes minutes."""
        moves = self._mode == "live" or self._is_redrawn
        if over.wait(APPEARS_S if moves else LINE_INTERVAL_S):
            return
        screen, line = Screen(self._stream, self._mode), RedrawnLine(self._stream)
        while True:
            if self._is_redrawn:
                line.show(bar.said())
            elif moves:
                bar.show_on(screen)
            else:
                screen.line(bar.said())
            if over.wait(RENEWED_S if moves else LINE_INTERVAL_S):
                break
        screen.clear()
        line.clear()


@final
class Bar:
    """The progress of a piece of work, which need not know whether it is shown."""

    def __init__(
        self, what: str, unit: str = "", total: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self.begin(what, unit, total)

    def begin(self, what: str, unit: str = "", total: float | None = None) -> None:
        """The next piece of work; `unit` is what is counted, `total` how much there is of it."""
        self._what, self._unit, self._total = what, unit, total
        self._done = 0.0
        self._first: float | None = None
        self._began = self._clock()

    def reach(self, done: float, total: float | None = None) -> None:
        """Reports the amount that is done, and the whole amount if it is known; the rate counts from the first
        report."""
        if self._first is None:
            self._first, self._began = done, self._clock()
        self._done = done
        if total is not None:
            self._total = total

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None if the whole amount is not known."""
        return min(self._done / self._total, 1.0) if self._total else None

    @property
    def figures(self) -> list[str]:
        """Amount, rate and time left, as far as they are known."""
        elapsed_s = self._clock() - self._began
        amount = format_bytes if self._unit == "bytes" else format_count
        unit = "" if self._unit == "bytes" else f" {self._unit}"
        if not self._unit or self._first is None:
            return [format_duration(elapsed_s)]
        rate = (self._done - self._first) / elapsed_s if elapsed_s > 0 else 0.0
        said = [f"{amount(self._done)}{f' of {amount(self._total)}' if self._total else ''}{unit}"]
        if rate > 0:
            said.append(f"{amount(rate)}{unit}/s")
            if self._total:
                said.append(f"{format_duration(max(self._total - self._done, 0.0) / rate)} left")
        return said

    def said(self) -> str:
        """The progress in one line of text."""
        return f"{self._what}: {', '.join(self.figures)}"

    def show_on(self, screen: Screen) -> None:
        """Shows the bar at the bottom of the screen."""
        screen.show(self.drawn(screen.console.width, ascii_only=not screen.can_draw_blocks))

    def drawn(self, width: int, *, ascii_only: bool = False) -> "Text":
        """The bar drawn on `width` columns."""
        from rich.cells import cell_len
        from rich.text import Text

        from fedlearn.terminal.drawing import draw_bar

        figures = "  ".join(self.figures)
        what = escape(self._what)
        text = Text(what, style="bold")
        columns = min(width - 1 - cell_len(f"{what}    {figures}"), BAR_COLUMNS)
        if self.share is not None and columns >= LEAST_BAR_COLUMNS:
            text.append("  ").append_text(draw_bar(self.share, columns, ascii_only=ascii_only))
        text.append(f"  {figures}", style="not bold")
        text.truncate(max(width - 1, 1), overflow="ellipsis")
        return text

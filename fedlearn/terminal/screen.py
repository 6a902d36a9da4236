"""A stream that people look at: lines that stay, and on a terminal a block below them that is renewed in place."""

import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO, cast, final

from fedlearn.terminal.guards import escape

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Mode = Literal["live", "plain", "quiet"]
"""The mode of a stream: a block below lines, lines alone, or only errors and the end."""


def mode_on(stream: TextIO | None, *, plain: bool = False, quiet: bool = False) -> Mode:
    """How to write to a stream: live where it is a terminal that can go back over its lines."""
    if quiet:
        return "quiet"
    is_terminal = stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return "live" if is_terminal and not plain else "plain"


@final
class Screen:
    """Writes for people; once nobody reads it any more, nothing is written, which is no reason to stop.

    Attributes:
        mode: how it writes.
    """

    def __init__(self, stream: TextIO | None, mode: Mode) -> None:
        self.mode: Mode = mode
        self._stream = _Lasting(stream)
        self._is_stdout = stream is sys.stdout
        self._console: Console | None = None
        self._live: Live | None = None

    @property
    def console(self) -> "Console":
        """The console of rich for drawings; rich is imported here, since only a live screen needs it."""
        if self._console is None:
            from rich.console import Console

            # Whether it is a terminal was decided before; markup and emoji codes in names must stay what they are.
            self._console = Console(
                file=cast(TextIO, self._stream),
                force_terminal=self.mode == "live",
                force_jupyter=False,
                markup=False,
                emoji=False,
                highlight=False,
            )
        return self._console

    @property
    def can_draw_blocks(self) -> bool:
        """Whether the reader of the stream supports more than ASCII."""
        return self._stream.encoding.lower().startswith("utf")

    def line(self, text: str, *, command: str = "") -> None:
        """A line that stays, in whatever mode; on a live screen its command can be copied in one piece."""
        if self.mode == "live":
            self._draw_line(escape(text), escape(command))
        else:
            self._stream.write(escape(": ".join(part for part in (text, command) if part)) + "\n")
            self._stream.flush()

    def draw(self, block: "RenderableType") -> None:
        """A drawing that stays, above the block; only on a live screen."""
        if self.mode == "live":
            self.console.print(block)

    def show(self, block: "RenderableType") -> None:
        """Takes the place of the block at the bottom; only on a live screen."""
        if self.mode != "live":
            return
        if self._live is None:
            self._live = self._begin()
        self._live.update(block, refresh=True)

    def clear(self) -> None:
        """Takes the block away."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _begin(self) -> "Live":
        from rich.live import Live

        # What others print meanwhile, such as a warning of Python's, would else land within the block.
        live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=self._is_stdout,
            redirect_stderr=self._is_stdout and sys.stderr is not None and sys.stderr.isatty(),
        )
        live.start()
        self.console.show_cursor(True)  # a process that is killed leaves it as it is
        return live

    def _draw_line(self, text: str, command: str) -> None:
        from rich.text import Text

        if text:
            self.console.print(Text(f"{text}:" if command else text))
        if command:
            # The terminal itself wraps it where it is too long, and copies it without a line's end in its midst.
            self.console.print(Text(f"  {command}", style="bold"), soft_wrap=True)


@final
class _Lasting:
    """A stream that takes what is written when nobody reads it any more, or never did."""

    def __init__(self, stream: TextIO | None) -> None:
        # A process without a terminal may have no stdout at all, whatever its type says.
        self._stream = stream

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("fileno: expected a stream, there is none")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text)
            except OSError:
                self._stream = None
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError:
                self._stream = None

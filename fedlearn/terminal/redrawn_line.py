"""A line that is written again and again in its place, in notebooks and terminals alike."""

from typing import TextIO, final

from fedlearn.terminal.guards import escape


@final
class RedrawnLine:
    """A line on a stream where a carriage return goes back to the beginning of the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, text: str) -> None:
        """Replaces the text of the line."""
        text = escape(text)
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Removes the line, so that others may take its place."""
        if self._width:
            self.show("")
            self._stream.write("\r")
            self._stream.flush()

    def keep(self) -> None:
        """Keeps the line above what follows."""
        self._stream.write("\n")
        self._stream.flush()
        self._width = 0

"""What is left on a terminal of what was written to it: the few sequences that programs of ours send."""

import io
import re
from typing import final

_TOKENS = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


@final
class Emulator(io.StringIO):
    """A terminal so many columns wide that keeps all of its lines."""

    encoding = "utf-8"

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns = columns
        self.has_cursor = True

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """The screen, without white space at ends of lines and without empty lines at its end."""
        rows, row, column = [""], 0, 0
        for match in _TOKENS.finditer(self.getvalue()):
            arguments, code = match.groups()
            text = match.group()
            if code == "A":
                row = max(row - int(arguments or 1), 0)
            elif code == "K":
                rows[row] = "" if arguments == "2" else rows[row][:column]
            elif code in ("h", "l") and arguments == "?25":
                self.has_cursor = code == "h"
            elif code in ("m", "h", "l"):
                pass
            elif code is not None:
                raise AssertionError(f"unknown sequence {text!r}")
            elif text == "\r":
                column = 0
            elif text == "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            else:
                assert column + len(text) <= self.columns, f"wraps: {text!r}"
                rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in "\n".join(rows).rstrip().split("\n")]

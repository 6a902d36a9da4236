"""Text on a terminal, which by itself would break it within words."""

import shutil
import textwrap
from typing import TextIO


def columns_of(stream: TextIO | None) -> int | None:
    """The width of the terminal that shows a stream; None where no terminal does."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def wrapped(text: str, columns: int | None, *, indent: str = "") -> str:
    """The text's lines in lines of at most so many columns, broken between words only; as it is without a number."""
    if columns is None:
        return indent + text
    wrapper = textwrap.TextWrapper(
        columns,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))

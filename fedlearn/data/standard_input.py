"""A text from standard input: put aside in a file, since it is read several times and can be had once."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO, final

from fedlearn.data.decoding import decode
from fedlearn.text.source import Texts

NAME = "standard input"


@final
class StandardInputText:
    """All of it is one text."""

    name = NAME

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        """Reads the whole stream.

        Raises:
            ValueError: it is a terminal, or empty.
        """
        if stream.isatty():
            raise ValueError(
                "data: expected a text on standard input, got a terminal; pipe one in, such as "
                "'cat FILE | fedlearn serve --data -'"
            )
        self._encoding = encoding
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (read as long as the text is)
        weakref.finalize(self, self._file.close)
        try:
            shutil.copyfileobj(stream, self._file, 2**20)
        except OSError as error:
            raise ValueError(
                f"data: expected room for {NAME} in {tempfile.gettempdir()}: {error.strerror}; "
                "set TMPDIR to a larger place"
            ) from error
        self.size_bytes = self._file.tell()
        if self.size_bytes == 0:
            raise ValueError(f"data: expected a text, got nothing from {NAME}")

    def texts(self, read: Callable[[int], None]) -> Texts:
        yield self._text(read)

    def _text(self, read: Callable[[int], None]) -> Iterator[str]:
        self._file.seek(0)
        yield from decode(self._file, NAME, self._encoding, read)

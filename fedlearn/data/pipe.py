"""A text from standard input or a pipe: put aside in a file, since it is read several times and can be had once."""

import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO, final

from fedlearn.data.decoding import decode
from fedlearn.system.invocation import invocation
from fedlearn.text.source import Progress, Texts

CHUNK_BYTES = 2**20


@final
class PipedText:
    """A source whose only text is all that the stream holds."""

    def __init__(self, name: str, stream: BinaryIO, encoding: str, progress: Progress) -> None:
        """Reads the whole stream.

        Raises:
            ValueError: it is a terminal, or empty.
        """
        if stream.isatty():
            raise ValueError(
                "data: expected a text on standard input, got a terminal; pipe one in, such as "
                f"'cat FILE | {invocation('serve')} --data -'"
            )
        self.name = name
        self.size_bytes = 0
        self._encoding = encoding
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (read as long as the text is)
        weakref.finalize(self, self._file.close)
        progress.begin(f"reading {name}", "bytes")
        # What there is by now, of a buffered stream: who writes slowly should be seen to write.
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        try:
            while chunk := read(CHUNK_BYTES):
                self._file.write(chunk)
                self.size_bytes += len(chunk)
                progress.reach(self.size_bytes)
        except OSError as error:
            raise ValueError(
                f"data: expected room for {name} in {tempfile.gettempdir()}: {error.strerror}; "
                "set TMPDIR to a larger place"
            ) from error
        if self.size_bytes == 0:
            raise ValueError(f"data: expected a text, got nothing from {name}")

    def texts(self, read: Callable[[int], None]) -> Texts:
        yield self._text(read)

    def _text(self, read: Callable[[int], None]) -> Iterator[str]:
        self._file.seek(0)
        yield from decode(self._file, self.name, self._encoding, read)

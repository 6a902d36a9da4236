"""Decodes bytes to text, piece by piece; errors name the position of what can't be decoded."""

import codecs
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

CHUNK_BYTES = 2**20

_WIDE = ("utf-16", "utf-32")
"""Encodings whose bytes may be zero."""


def check_encoding(encoding: str) -> None:
    """Checks that Python can decode text in this encoding.

    Raises:
        ValueError: it cannot.
    """
    try:
        "a".encode(encoding)
    except LookupError as error:
        raise ValueError(
            f"encoding: expected one that Python knows, such as utf-8, latin-1 or cp1252, got {encoding!r}"
        ) from error


def as_text(text: str) -> str:
    """A text of a data set as files have texts: with newlines at the ends of lines, and no half surrogate pairs."""
    return text.encode("utf-8", errors="replace").decode().replace("\r\n", "\n").replace("\r", "\n")


def decode(file: BinaryIO, name: str, encoding: str, read: Callable[[int], None]) -> Iterator[str]:
    """The text of a file, opened for reading bytes, with newlines at the ends of lines and without byte order mark.

    `read` is told the bytes of each piece.

    Raises:
        ValueError: bytes are no text in this encoding.
    """
    codec = codecs.lookup(encoding).name
    decoder = codecs.getincrementaldecoder("utf-8-sig" if codec == "utf-8" else codec)()
    lines = io.IncrementalNewlineDecoder(decoder, translate=True)
    n_read, is_last = 0, False
    while not is_last:
        chunk = file.read(CHUNK_BYTES)
        is_last = not chunk
        if not codec.startswith(_WIDE) and (zero := chunk.find(0)) >= 0:
            raise ValueError(
                f"data: expected text, got a zero byte at byte {n_read + zero} of {name}; "
                "unpack it if it is compressed, or name the encoding of its text, such as --encoding utf-16"
            )
        n_read += len(chunk)
        try:
            piece = lines.decode(chunk, final=is_last)
        except UnicodeDecodeError as error:
            # The codec had some bytes of the chunk before.
            place = n_read - len(error.object) + error.start
            raise ValueError(
                f"data: expected text in {encoding}, got other bytes at byte {place} of {name} ({error.reason}); "
                "name its encoding (such as --encoding latin-1) or convert the file"
            ) from error
        read(len(chunk))
        if piece:
            yield piece

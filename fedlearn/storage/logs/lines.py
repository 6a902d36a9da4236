"""Files of lines, each a JSON object, to which lines are only appended."""

import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import TypeVar, final

import msgspec

from fedlearn.storage.durable import StorageError

StructType = TypeVar("StructType", bound=msgspec.Struct)


_TAIL_BYTES = 65536
"""Bytes that are first read from the end, a few hundred lines; doubled until they hold the requested lines."""


@final
class LineLog:
    """A file of lines, which is opened when the first line is added and then stays open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None

    def append(self, value: msgspec.Struct) -> None:
        """Adds a line. A torn line that a crash left behind is ended first.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            if self._file is None:
                self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115 (close closes it)
                size = self._file.seek(0, os.SEEK_END)
                self._file.seek(max(size - 1, 0))
                if self._file.read() not in (b"", b"\n"):
                    self._file.write(b"\n")
            self._file.write(msgspec.json.encode(value) + b"\n")
        except OSError as error:
            raise StorageError(
                f"{self._path}: a line could not be written: {error.strerror}; make room or repair the disk, and resume"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_last(path: Path, expected: type[StructType], count: int = 1) -> list[StructType]:
    """The last `count` lines, oldest first, read from the end of the file; fewer if there are fewer.

    Torn lines are passed over, and a missing file has none.
    """
    if not path.exists():
        return []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        wanted = _TAIL_BYTES
        while True:
            file.seek(max(0, size - wanted))
            found = list(decoded(file.read(min(size, wanted)).splitlines(), expected))
            if len(found) >= count or wanted >= size:
                return found[-count:] if count else []
            wanted *= 2


def read_lines(path: Path, expected: type[StructType]) -> Iterator[StructType]:
    """Every line that can be read, in order; torn ones are passed over, and a missing file has none."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        yield from decoded(file, expected)


def decoded(lines: Iterable[bytes], expected: type[StructType]) -> Iterator[StructType]:
    """The lines that can be read, in order; others are passed over."""
    decoder = msgspec.json.Decoder(expected)
    for line in lines:
        try:
            yield decoder.decode(line)
        except (ValueError, RecursionError):  # bytes that are no UTF-8 are a ValueError, too
            continue

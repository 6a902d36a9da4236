"""Files of lines to which other processes append, read piece by piece."""

import os
from pathlib import Path
from typing import Generic, final

import msgspec

from fedlearn.storage.logs.lines import StructType, decoded

PIECE_BYTES = 4 * 2**20
"""Bytes read at a time."""

MAX_LINE_BYTES = 2**20


@final
class GrowingFile(Generic[StructType]):
    """Gives each whole line once; lines that cannot be read as the expected object are passed over."""

    def __init__(self, path: Path, expected: type[StructType]) -> None:
        self._path = path
        self._expected, self._decoder = expected, msgspec.json.Decoder(expected)
        self._offset = 0
        self._inode = 0

    def read(self) -> tuple[list[StructType], bool]:
        """The next lines, none at the end of the file; and whether they begin another file than the last ones."""
        if not self._path.is_file():  # who opens a pipe waits for its other end
            return [], False
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                is_other = bool(self._inode) and (found.st_ino != self._inode or found.st_size < self._offset)
                if is_other:
                    self._offset = 0
                self._inode = found.st_ino
                file.seek(self._offset)
                piece = file.read(PIECE_BYTES)
        except OSError:
            return [], False
        end = piece.rfind(b"\n") + 1
        if end == 0 and len(piece) > MAX_LINE_BYTES:
            end = len(piece)  # no line that anybody wrote for us
        self._offset += end
        return self._decoded(piece[:end]), is_other

    def _decoded(self, piece: bytes) -> list[StructType]:
        try:
            return self._decoder.decode_lines(piece)
        except (ValueError, RecursionError):
            return list(decoded(piece.splitlines(), self._expected))

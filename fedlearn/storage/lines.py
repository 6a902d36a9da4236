"""Files of lines, a JSON object each, that are only ever appended to."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from fedlearn.storage.durable import StorageError

StructType = TypeVar("StructType", bound=msgspec.Struct)


def append_line(path: Path, value: msgspec.Struct) -> None:
    """Adds a line. A torn line that a crash left behind is ended first. Raises StorageError where the disk refuses."""
    try:
        with open(path, "a+b") as file:
            torn = file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write((b"\n" if torn else b"") + msgspec.json.encode(value) + b"\n")
    except OSError as error:
        raise StorageError(f"{path}: a line could not be added: {error.strerror}; make room and resume") from error


def read_lines(path: Path, expected: type[StructType]) -> Iterator[StructType]:
    """Every line, in order; torn ones are passed over, and a missing file has none."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(expected)
    with open(path, "rb") as file:
        for line in file:
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue

"""The durable way to write a file: it is there as a whole, or as it was before."""

import os
from contextlib import suppress
from pathlib import Path

from fedlearn.system.files import replace, sync_folder

PARTIAL_SUFFIX = ".partial"
"""Of a file that is still being written; one that is found later belonged to a process that died."""


class StorageError(Exception):
    """A run's folder or one of its files cannot be used; the message names the path and the remedy."""


def write_durably(path: Path, *payload: bytes | memoryview) -> None:
    """Puts the file there in one piece: after a crash it holds all of `payload`, or what it held before.

    Raises StorageError, e.g. on a full disk; the file is then as it was before.
    """
    _replace(path, *payload, is_durable=True)


def replace_file(path: Path, payload: bytes) -> None:
    """Puts the file there in one piece for whoever reads it; what a power cut leaves of it is not said.

    Raises StorageError as `write_durably` does.
    """
    _replace(path, payload, is_durable=False)


def _replace(path: Path, *payload: bytes | memoryview, is_durable: bool) -> None:
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        with open(partial, "wb") as file:
            for piece in payload:
                file.write(piece)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        replace(partial, path)
        if is_durable:
            sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise StorageError(
            f"{path}: could not be written: {error.strerror}; make room or choose another place"
        ) from error


def make_folder(path: Path) -> None:
    """The folder is there, with those above it, and stays after a power cut. Raises StorageError."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: expected a folder: {error.strerror}; make room or choose another place") from error

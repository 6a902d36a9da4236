"""Writes a file durably: afterwards it is there as a whole, or it is as it was before."""

import os
from contextlib import suppress
from pathlib import Path

from fedlearn.system.files import replace, sync_folder

PARTIAL_SUFFIX = ".partial"
"""Suffix of the name of a file that is being written; one that is found later belonged to a process that died."""


class StorageError(Exception):
    """Raised where a run's folder or one of its files cannot be used; the message names the path and the remedy."""


def write_durably(path: Path, *payload: bytes | memoryview) -> None:
    """Replaces a file as a whole: after a crash it holds all of `payload`, or what it held before.

    Raises:
        StorageError: the disk refuses, for instance because it is full; the file is then as it was before.
    """
    _replace(path, *payload, is_durable=True)


def replace_file(path: Path, payload: bytes) -> None:
    """Replaces a file as a whole for its readers, without a promise for a power cut.

    Raises:
        StorageError: the disk refuses; the file is then as it was before.
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
    """Makes a folder, and those above it, so that it stays after a power cut.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: expected a folder: {error.strerror}; make room or choose another place") from error

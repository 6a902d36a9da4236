"""The origin of a run, which tells it from all others: its first state, the settings that determine it, and its files.

`origin.json` holds all that with its hash, which is in the header of every segment of the journal. Each checkpoint
holds all of it, so that one damaged file is no loss.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from fedlearn.storage.checkpoint import checkpoints_in, load_metadata
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder

_NAME_BYTES = 16
_CHUNK_BYTES = 2**22
"""Bytes that are read at a time: texts may be larger than memory."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run that never change."""

    step: int
    """The step at which the run begins."""
    digest: str
    """Digest of genesis, hexadecimal."""
    settings: dict[str, Any]
    """The keys that a resumed run may not change, with their values."""
    files: dict[str, str]
    """BLAKE3 of each file in the data folder, hexadecimal: data, tokenizer, record of the task."""

    @property
    def identity(self) -> bytes:
        """The run's identity: a hash of all these facts, 16 bytes."""
        return blake3(msgspec.json.encode(self, order="sorted")).digest(_NAME_BYTES)


class _Sealed(msgspec.Struct, frozen=True):
    identity: str
    origin: Origin


def to_text(origin: Origin) -> str:
    """The JSON text that `load_origin` reads."""
    encoded = msgspec.json.encode(_Sealed(origin.identity.hex(), origin), order="sorted")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def hash_of(path: Path) -> str:
    """BLAKE3 of a file, hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    digest = blake3(max_threads=blake3.AUTO)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest(_NAME_BYTES)


def load_origin(run: RunFolder) -> tuple[Origin, tuple[str, ...]]:
    """The run's origin, and texts about files that were passed over to find it.

    Raises:
        StorageError: no file of the run has it.
    """
    try:
        return _parsed(_text_of(run.origin), run.origin), ()
    except StorageError as error:
        problem = str(error)
    for path in [run.genesis, *checkpoints_in(run)]:
        with suppress(StorageError):
            return _parsed(load_metadata(path, "origin"), path), (f"skipped: {problem}; read from {path} in its place",)
    raise StorageError(f"{problem}; a run of an older version of fedlearn needs that version")


def check_files(run: RunFolder, origin: Origin) -> None:
    """Checks the files in the data folder.

    Raises:
        StorageError: a file, which the message names, is not the one that the run began with.
    """
    for name, expected in origin.files.items():
        path = run.data / name
        try:
            found = hash_of(path)
        except OSError as error:
            raise StorageError(
                f"{path}: expected a file that the run was begun with: {error.strerror}; restore it from a copy"
            ) from error
        if found != expected:
            raise StorageError(
                f"{path}: expected the file that the run was begun with (BLAKE3 {expected}), got another or a damaged "
                f"one ({found}); restore it from a copy"
            )


def check_same_run(origin: Origin, text: str, path: Path) -> None:
    """Compares the origin in a checkpoint, as JSON text, with that of the run.

    Raises:
        StorageError: the checkpoint is of another run.
    """
    if (other := _parsed(text, path)).identity != origin.identity:
        raise StorageError(
            f"{path}: expected a checkpoint of this run ({origin.identity.hex()}), got one of another "
            f"({other.identity.hex()}); move it out of the folder"
        )


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"{path}: expected what the run was begun with: {reason}; restore it from a copy") from error


def _parsed(text: str, path: Path) -> Origin:
    try:
        sealed = msgspec.json.decode(text, type=_Sealed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StorageError(f"{path}: expected the origin of a run: {error}; restore it from a copy") from error
    if sealed.identity != sealed.origin.identity.hex():
        raise StorageError(
            f"{path}: expected an origin with the hash {sealed.identity}, it has another; restore it from a copy"
        )
    return sealed.origin

"""Locks, folders on the disk, names that change hands, and where a person's files lie."""

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PATIENCE_S = 2.0 if sys.platform == "win32" else 0.0
"""For a file that another process has open: viewers and scanners have it for a moment."""

_RETRY_S = 0.02

_LOCK_AT = 2**30
"""The byte that Windows locks: nobody may read what is locked, and the file's own bytes say who holds it."""


def lock_file(descriptor: int) -> bool:
    """Whether this process has the file to itself now, until it closes it or ends, however it ends.

    Raises OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCK_AT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
    else:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def sync_folder(path: Path) -> None:
    """Brings the names in a folder to the disk; Windows opens no folder, and does so by itself.

    Raises OSError where it refuses.
    """
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace(
    source: Path,
    target: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """The source takes the target's name, in one piece for whoever opens it.

    Windows refuses that while anybody has the target open, and is asked again. Raises OSError.
    """
    deadline = clock() + _PATIENCE_S
    while True:
        try:
            source.replace(target)
            return
        except PermissionError:
            if clock() >= deadline:
                raise
            sleep(_RETRY_S)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where programs keep what they can have again."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if (given := Path(environ.get(name, ""))).is_absolute():  # XDG: a path that is not is to be ignored
            return given
    return Path.home() / ".cache"


def settings_folder(environ: Mapping[str, str]) -> Path:
    """Where programs keep a person's settings."""
    config = Path(environ.get("XDG_CONFIG_HOME", ""))
    if config.is_absolute():  # XDG: a path that is not is to be ignored
        return config
    home = ("APPDATA", "") if sys.platform == "win32" else ("HOME", ".config")
    return Path(environ.get(home[0], "/nonexistent")) / home[1]

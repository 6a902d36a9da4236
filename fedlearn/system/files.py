"""Locks, folders on the disk, the renaming of files, and the folders for a person's files."""

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PATIENCE_S = 2.0 if sys.platform == "win32" else 0.0
"""Seconds for which a file may be open in another process before renaming fails: viewers and scanners open it for a
moment."""

_RETRY_S = 0.02

_LOCK_AT = 2**30
"""The byte that Windows locks: nobody can read a locked byte, and the file's own bytes say who holds it."""


Mark = tuple[int, ...]


def mark_of(path: Path) -> Mark:
    """A value that changes whenever the file is written or replaced; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def lock_file(descriptor: int) -> bool:
    """Locks a file for this process, until it closes the file or ends; gives whether it has the lock.

    Raises:
        OSError: the file system has no locks.
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
    """Brings the names in a folder to the disk; Windows cannot open folders, and does so by itself.

    Raises:
        OSError: the disk refuses.
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
    """Renames a file to the target's name; programs that open it find the old or the new file.

    Windows refuses that while another program has the target open, so it is tried again for a moment.

    Raises:
        OSError: the system refuses.
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
    """The folder of files that programs could make or download again."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if (given := Path(environ.get(name, ""))).is_absolute():  # XDG: relative paths are to be ignored
            return given
    return Path.home() / ".cache"


def settings_folder(environ: Mapping[str, str]) -> Path:
    """The folder of a person's settings for programs."""
    config = Path(environ.get("XDG_CONFIG_HOME", ""))
    if config.is_absolute():  # XDG: relative paths are to be ignored
        return config
    home = ("APPDATA", "") if sys.platform == "win32" else ("HOME", ".config")
    return Path(environ.get(home[0], "/nonexistent")) / home[1]


def who_else_may_write(found: os.stat_result) -> str:
    """Describes who may write to a file or folder beside this process's user and the administrator; empty where nobody
    may."""
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "its group or everybody can write to"
    return "" if sys.platform == "win32" or found.st_uid in (os.getuid(), 0) else "belongs to somebody else"


def may_others_read(found: os.stat_result) -> bool:
    """Whether a file's mode lets its group or everybody read it; Windows has no such modes."""
    return sys.platform != "win32" and bool(found.st_mode & (stat.S_IRGRP | stat.S_IROTH))

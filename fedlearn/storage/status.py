"""`status.json`: the present state of a run, replaced as a whole about once a second.

It is a view for viewers, and nothing is rebuilt from it: a server that was killed leaves an old one behind, and a power
cut may leave an empty one.
"""

from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from fedlearn.storage.durable import replace_file

MAX_BYTES = 64 * 2**20
"""The longest file that is read; ten thousand volunteers take 3 MB."""

FRESH_S = 10.0
"""The greatest age of the status of a run that goes on, however busy its machine is."""

T = TypeVar("T")


def write_status(path: Path, status: msgspec.Struct) -> None:
    """Replaces the file.

    Raises:
        StorageError: the disk refuses.
    """
    replace_file(path, msgspec.json.encode(status))


def read_status(path: Path, expected: type[T], *, max_bytes: int = 0) -> T | None:
    """The status, or another value, in a JSON file of at most `max_bytes`; None where there is none that can be read.

    0 stands for MAX_BYTES.
    """
    try:
        if not path.is_file() or path.stat().st_size > (max_bytes or MAX_BYTES):  # a device has no end, a pipe no size
            return None
        return msgspec.json.decode(path.read_bytes(), type=expected)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_alive(pid: int, time: float, *, now: float) -> bool:
    """Whether the process that wrote a status is still running, as far as this machine can tell.

    `time` is when it wrote and `now` the present, in seconds since 1970: a process id that was given to another process
    since is recognised by an old status. Nothing can be told of a process on another machine.
    """
    if not 0 < pid < 2**31 or not abs(now - time) < FRESH_S:
        return False
    return psutil.pid_exists(pid)

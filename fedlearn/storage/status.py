"""`status.json`: where a run stands just now, replaced as a whole once a second.

A view for whoever looks on, and no part of the run: nothing is rebuilt from it, a server that was killed leaves an old
one behind, and a power cut may leave an empty one.
"""

from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from fedlearn.storage.durable import replace_file

MAX_BYTES = 64 * 2**20
"""Of a file that is read; ten thousand volunteers take 3 MB."""

FRESH_S = 10.0
"""Of a run that goes on, however busy its machine is."""

StructType = TypeVar("StructType", bound=msgspec.Struct)


def write_status(path: Path, status: msgspec.Struct) -> None:
    """Replaces the file. Raises StorageError where the disk refuses."""
    replace_file(path, msgspec.json.encode(status))


def read_status(path: Path, expected: type[StructType]) -> StructType | None:
    """What the file says, None where there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:  # a device has no end, a pipe no size
            return None
        return msgspec.json.decode(path.read_bytes(), type=expected)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_alive(pid: int, time: float, *, now: float) -> bool:
    """Whether the process that wrote at this time still does, as far as can be told from here.

    Of another machine's process nothing can be told. A number that was given to another process since is told by the
    time, both in seconds since 1970.
    """
    if not 0 < pid < 2**31 or not abs(now - time) < FRESH_S:
        return False
    return psutil.pid_exists(pid)

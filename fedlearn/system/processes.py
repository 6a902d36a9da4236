"""A process's rank among others, and what the system lets it have."""

import ctypes
import sys
from contextlib import suppress

import psutil

if sys.platform == "win32":
    _LOWEST = psutil.IDLE_PRIORITY_CLASS
else:
    import resource

    _LOWEST = 19

CAN_PASS_DESCRIPTORS = sys.platform != "win32"
"""Whether a child may be given one by its number."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As malloc.h has them."""


def give_way() -> None:
    """Lets every other process go first; for threads that start later, so early in a process."""
    process = psutil.Process()
    with suppress(OSError, psutil.Error):
        process.nice(_LOWEST)
    with suppress(OSError, psutil.Error):
        if sys.platform == "win32":
            process.ionice(psutil.IOPRIO_VERYLOW)
        elif sys.platform == "linux":  # macOS has no classes of I/O
            process.ionice(psutil.IOPRIO_CLASS_IDLE)


def step_back(pid: int, niceness: int) -> None:
    """The process waits while others have something to do: the more, the nicer it is; Windows has one such rank."""
    with suppress(OSError, psutil.Error):  # it may have ended already
        if sys.platform == "win32":
            psutil.Process(pid).nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            psutil.Process(pid).nice(niceness)


def open_files() -> int:
    """How many files this process may have open, once it may have as many as the system lets it."""
    if sys.platform == "win32":
        granted = -1  # its sockets are no files, and nothing limits them
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if granted < 0 else granted


def limit_growth(n_bytes: int) -> None:
    """Lets the system refuse data beyond what the process holds and so many bytes more.

    Of data, not of addresses: PyTorch reserves many more of these than it ever uses. Elsewhere than on Linux the limit
    means other things, or nothing.
    """
    if sys.platform == "linux":
        with suppress(OSError, ValueError, psutil.Error):
            limit = psutil.Process().memory_info().data + n_bytes
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            if hard == resource.RLIM_INFINITY or limit < hard:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def keep_memory() -> None:
    """Lets trials take the memory of those before them; else the system takes it back, and fills it with zeros anew."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # of glibc
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

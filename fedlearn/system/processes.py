"""Child processes: how one is started, its priority, and the files and memory that the system lets it have."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import psutil

if sys.platform == "win32":
    _LOWEST = psutil.IDLE_PRIORITY_CLASS
else:
    import resource

    _LOWEST = 19

CAN_PASS_DESCRIPTORS = sys.platform != "win32"
"""Whether a child process may be given a file descriptor by its number."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of malloc.h."""


def program(arguments: Sequence[str], *, module: str = "fedlearn") -> list[str]:
    """A command line that calls `fedlearn`, or another module of ours, with this very Python.

    `-P` keeps the working directory off the path: a child in a checkout would find the sources there, without the
    compiled core, before the installed package.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def end_family(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process that was started with a session of its own, and all in that session."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def communicate(process: "subprocess.Popen[bytes]", given: bytes, *, timeout_s: float) -> tuple[bytes, bytes]:
    """What a process with a session of its own prints, to standard output and as errors, until it ends.

    However this returns, the process and all in its session have ended.

    Raises:
        subprocess.TimeoutExpired: it was not done in time, and was killed.
    """
    try:
        return process.communicate(given, timeout=timeout_s)
    finally:
        if process.returncode is None:
            end_family(process)
            process.communicate()


def give_way() -> None:
    """Lowers the priority of this process; threads that start later inherit it, so call it early."""
    process = psutil.Process()
    with suppress(OSError, psutil.Error):
        process.nice(_LOWEST)
    with suppress(OSError, psutil.Error):
        if sys.platform == "win32":
            process.ionice(psutil.IOPRIO_VERYLOW)
        elif sys.platform == "linux":  # macOS has no classes of I/O
            process.ionice(psutil.IOPRIO_CLASS_IDLE)


def wait_asleep() -> None:
    """Lets threads of PyTorch that wait for each other sleep, unless the user said otherwise.

    Call it before PyTorch is imported. By default threads spin, so that processes with more threads than processors
    between them are several times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def step_back(pid: int, niceness: int) -> None:
    """Lowers the priority of a process: the more, the higher `niceness`; Windows has one lower priority."""
    with suppress(OSError, psutil.Error):  # it may have ended already
        if sys.platform == "win32":
            psutil.Process(pid).nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            psutil.Process(pid).nice(niceness)


def open_files() -> int:
    """The number of files that this process may have open; raises the soft limit to the hard one first."""
    if sys.platform == "win32":
        granted = -1  # sockets are no files on Windows, and nothing limits them
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if granted < 0 else granted


def limit_growth(n_bytes: int) -> None:
    """Lets the system refuse memory for data beyond what the process has and `n_bytes` more.

    The limit is on data, not on address space, of which PyTorch reserves far more than it uses. Only Linux has such a
    limit.
    """
    if sys.platform == "linux":
        with suppress(OSError, ValueError, psutil.Error):
            limit = psutil.Process().memory_info().data + n_bytes
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            if hard == resource.RLIM_INFINITY or limit < hard:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def keep_memory() -> None:
    """Lets trials reuse the memory of earlier ones, which would otherwise go back to the system and be zeroed anew."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # of glibc
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

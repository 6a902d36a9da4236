"""Runs `fedlearn` where there is only what Windows has, as far as another system can pretend that.

`os.name` stays: with another one there are no paths.
"""

import asyncio
import errno
import importlib
import os
import signal
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import psutil

OTHERS = ["blake3", "cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.x509", "msgspec", "numpy"]
OTHERS += ["ssl", "concurrent.futures.thread", "safetensors.numpy", "subprocess", "tempfile"]
"""Modules of others, which ask for the system when they are imported."""

ABSENT_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
ABSENT_NAMES = {
    os: "O_DIRECTORY fork forkpty getegid geteuid getgid getpgrp getpriority getuid killpg nice pread pwrite "
    "sched_getaffinity setpriority setsid tcgetpgrp",
    signal: "SIGALRM SIGCONT SIGHUP SIGKILL SIGUSR1 SIGUSR2 add_signal_handler pause pthread_sigmask",
}

locked: dict[tuple[int, int], int] = {}
"""The first byte that is locked of a file, by its device and number: for this process alone."""


def pretend() -> None:
    """From here on this process is one of Windows."""
    for module in OTHERS:
        importlib.import_module(module)
    sysconfig.get_config_vars()  # which it finds by the system's name
    for module in ABSENT_MODULES:
        sys.modules[module] = None  # type: ignore[assignment]
    for place, names in ABSENT_NAMES.items():
        for name in names.split():
            if hasattr(place, name):
                delattr(place, name)
    vars(os)["process_cpu_count"] = os.cpu_count  # from Python 3.13 on, which other systems define by affinity
    signal.SIGBREAK = signal.SIGQUIT  # type: ignore[attr-defined]
    psutil.IDLE_PRIORITY_CLASS, psutil.BELOW_NORMAL_PRIORITY_CLASS = 19, 5  # type: ignore[attr-defined]
    psutil.IOPRIO_VERYLOW = psutil.IOPRIO_CLASS_IDLE  # type: ignore[attr-defined]
    for method in ("add_signal_handler", "remove_signal_handler", "add_reader", "remove_reader"):
        setattr(asyncio.SelectorEventLoop, method, _refuse)
    sys.modules["msvcrt"] = _msvcrt()
    os.open = _open_no_folders
    sys.platform = "win32"


_open = os.open


def _open_no_folders(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:  # noqa: ANN401
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return _open(path, flags, mode, dir_fd=dir_fd)


def _refuse(*_: object) -> NoReturn:
    raise NotImplementedError


def _msvcrt() -> ModuleType:
    module = ModuleType("msvcrt")
    keys: list[str] = list(os.environ.get("PRESSED", ""))

    def locking(descriptor: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (2, 1)
        at, status = os.lseek(descriptor, 0, os.SEEK_CUR), os.fstat(descriptor)
        if locked.setdefault((status.st_dev, status.st_ino), descriptor) != descriptor:
            raise OSError(errno.EACCES, "Permission denied")
        assert at > 2**20, "what is locked can't be read"

    module.__dict__.update(LK_NBLCK=2, locking=locking, kbhit=lambda: bool(keys), getwch=lambda: keys.pop(0))
    return module


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    pretend()
    if sys.argv[1] == "-c":
        exec(sys.argv[2])
    else:
        from fedlearn.commands.command_line import main

        main(sys.argv[1:])

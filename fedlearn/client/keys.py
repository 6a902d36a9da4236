"""Single keys from a terminal, where this process is the one that the person is typing to."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def keys(on_key: Callable[[str], None]) -> Iterator[bool]:
    """Calls `on_key` with each key until it is left; False where there is nobody to press any."""
    terminal = _terminal()
    if terminal is None or not _is_in_front(terminal):
        yield False
        return
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = b""
        if _is_in_front(terminal):  # in the background a read would stop the whole process
            with suppress(OSError):
                pressed = os.read(terminal, 64)
        if not pressed:  # the terminal is another's now, or gone
            loop.remove_reader(terminal)
        for key in pressed.decode(errors="ignore"):
            on_key(key)

    def listen() -> None:
        if _is_in_front(terminal):
            tty.setcbreak(terminal, termios.TCSANOW)
            loop.add_reader(terminal, read)

    listen()
    loop.add_signal_handler(signal.SIGCONT, listen)  # the shell has set its own mode while this was stopped
    try:
        yield True
    finally:
        loop.remove_reader(terminal)
        loop.remove_signal_handler(signal.SIGCONT)
        if _is_in_front(terminal):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def _terminal() -> int | None:
    stream: Any = sys.stdin  # None in a process without any
    try:
        return int(stream.fileno()) if stream is not None and stream.isatty() else None
    except (OSError, ValueError):
        return None


def _is_in_front(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False

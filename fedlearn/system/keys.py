"""Single key presses at a terminal, where the person types to this process."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fedlearn.system.signals import AWAKE_SIGNALS, listen, unlisten

if sys.platform == "win32":
    import msvcrt
else:
    import termios
    import tty

POLL_S = 0.1
"""Seconds between two checks for keys on Windows, which wakes no event loop for them."""

OnKey = Callable[[str], None]


@contextmanager
def keys(on_key: OnKey) -> Iterator[bool]:
    """Calls `on_key` with each key that is pressed until the context ends; gives False where there is no keyboard."""
    terminal = _terminal()
    if terminal is None or not _is_in_front(terminal):
        yield False
        return
    with _pressed(terminal, on_key):
        yield True


def _terminal() -> int | None:
    stream: Any = sys.stdin  # None in a process without any
    try:
        return int(stream.fileno()) if stream is not None and stream.isatty() else None
    except (OSError, ValueError):
        return None


if sys.platform == "win32":

    def _is_in_front(terminal: int) -> bool:
        del terminal
        return True

    @contextmanager
    def _pressed(terminal: int, on_key: OnKey) -> Iterator[None]:
        del terminal  # there is one console

        async def poll() -> None:
            while True:
                while msvcrt.kbhit():
                    on_key(msvcrt.getwch())
                await asyncio.sleep(POLL_S)

        polling = asyncio.get_running_loop().create_task(poll())
        try:
            yield
        finally:
            polling.cancel()

else:

    def _is_in_front(terminal: int) -> bool:
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        except OSError:
            return False

    @contextmanager
    def _pressed(terminal: int, on_key: OnKey) -> Iterator[None]:
        before = termios.tcgetattr(terminal)
        loop = asyncio.get_running_loop()

        def read() -> None:
            pressed = b""
            if _is_in_front(terminal):  # in the background a read would stop the whole process
                with suppress(OSError):
                    pressed = os.read(terminal, 64)
            if not pressed:  # the terminal now belongs to another process, or is gone
                loop.remove_reader(terminal)
            for key in pressed.decode(errors="ignore"):
                on_key(key)

        def begin() -> None:
            if _is_in_front(terminal):
                tty.setcbreak(terminal, termios.TCSANOW)
                loop.add_reader(terminal, read)

        begin()
        listen(loop, AWAKE_SIGNALS, begin)  # the shell sets its own mode while this process is stopped
        try:
            yield
        finally:
            loop.remove_reader(terminal)
            unlisten(loop, AWAKE_SIGNALS)
            if _is_in_front(terminal):
                termios.tcsetattr(terminal, termios.TCSANOW, before)

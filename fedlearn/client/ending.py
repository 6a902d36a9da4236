"""How a client's process ends while a computation in it does not."""

import os
import sys
import threading
from contextlib import suppress

from fedlearn.client.conversation import computes
from fedlearn.system.signals import stop_this_process

EXIT_S = 0.95
"""Seconds from the decision to leave to the end of the process, at most."""

SLICE_S = 0.25
"""Seconds for which trials under way may go on."""


def end_soon() -> None:
    """Ends the process within EXIT_S, whatever it does; usually it has ended by itself before."""
    timer = threading.Timer(EXIT_S, _end, (0,))
    timer.daemon = True
    timer.start()


def end_with_input() -> None:
    """Stops the process, as SIGTERM does, once its standard input ends, since the process that started it is gone."""
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    # Not sys.stdin: a thread that holds its lock when the interpreter ends is a fatal error.
    while os.read(0, 4096):
        pass
    stop_this_process()


def end(code: int) -> int:
    """The exit code, once no computation goes on; ends the process if one does not end in SLICE_S."""
    waiting = threading.Event()
    for _ in range(10):
        if not computes():
            return code
        waiting.wait(SLICE_S / 10)
    _end(code)
    return code


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)

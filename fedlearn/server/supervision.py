"""`--supervise`: a small process that starts the server again when it was killed or has crashed."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import final

import msgspec

from fedlearn.system.children import WRONG_USAGE, Restarts
from fedlearn.system.signals import how_it_ended, stop_signals_call


class Serving(msgspec.Struct, frozen=True):
    """A server's message to its supervisor: where a new server can resume."""

    folder: str
    port: int


def tell(descriptor: int, begun: Serving) -> None:
    """Tells the supervisor once, from the server, that the run has begun."""
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.encode(begun))


@final
class Supervisor:
    """Runs one server after another until one ends properly, or keeps dying at once.

    `command` gives the command line of the first server, or of one that goes on with a run.
    """

    def __init__(
        self, command: Callable[[Serving | None, int], Sequence[str]], *, say: Callable[[str], None] = print
    ) -> None:
        self._command = command
        self._say = say
        self._begun: Serving | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def run(self) -> int:
        """Runs servers; gives the exit code of the last one."""
        with stop_signals_call(self._stop):
            return self._run()

    def _run(self) -> int:
        restarts = Restarts()
        while True:
            began = time.monotonic()
            code = self._serve()
            if code in (0, WRONG_USAGE) or self._stopped.is_set() or self._begun is None:
                return code if code >= 0 else 128 - code  # as shells do
            how = how_it_ended(code)
            pause_s = restarts.died(time.monotonic() - began)
            if pause_s is None:
                self._say(f"the server {how} again and again; it is not restarted any more")
                return max(code, 1)
            self._say(f"the server {how}; it is restarted in {pause_s:.0f} s, and the run goes on")
            sys.stdout.flush()
            if self._stopped.wait(pause_s):
                return 0

    def _serve(self) -> int:
        """Runs a server to its end; gives its exit code."""
        read, write = os.pipe()
        try:
            command = self._command(self._begun, write)
            self._process = subprocess.Popen(command, pass_fds=(write,), start_new_session=True)
        finally:
            os.close(write)
        if self._stopped.is_set():  # while the process was being started
            self._process.terminate()
        with os.fdopen(read, "rb") as stream:
            told = stream.read()
        if told:
            self._begun = msgspec.json.decode(told, type=Serving)
        return self._process.wait()

    def _stop(self, number: int) -> None:
        self._stopped.set()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

"""A process that imports what takes seconds before anybody knows what it is to do, and then waits to be told."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, final

from fedlearn.system.children import stop_processes
from fedlearn.system.processes import program

MODULE = "fedlearn.commands.ahead"
"""The module that such a process runs."""


@final
class WaitingProcess:
    """A process of `fedlearn` without its arguments.

    Attributes:
        process: the process, whose standard input stays open until `close`; where that ends too early, it exits.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    @classmethod
    def start(cls, *how: str, command: Sequence[str] = (), **given: Any) -> Self:  # noqa: ANN401 (Popen's own)
        """Starts one; `how` is the verb, and `low` where it shall give way to others. `given` are Popen's arguments.

        Raises:
            OSError: it could not be started.
        """
        return cls(subprocess.Popen(command or program(how, module=MODULE), stdin=subprocess.PIPE, **given))

    def begin(self, arguments: Sequence[str], *, log: str = "") -> "subprocess.Popen[bytes]":
        """Has it run `fedlearn` with these arguments, and write what it prints into a file, where one is named."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, as whoever looks will see
            self.process.stdin.write(json.dumps({"arguments": list(arguments), "log": log}).encode() + b"\n")
            self.process.stdin.flush()
        return self.process

    def close(self) -> None:
        """Ends its standard input: a process that waits exits, and so does a companion."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def stop(self, *, patience_s: float) -> None:
        """Asks the process to end, if it has not, waits for so many seconds, and kills it where it is left."""
        stop_processes([self.process], patience_s=patience_s)
        self.close()


def line_of_input() -> bytes:
    """The first line of standard input, of which no more is read; empty where it ends before."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        line += byte
    return bytes(line)

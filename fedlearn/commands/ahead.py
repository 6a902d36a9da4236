"""`python -m fedlearn.commands.ahead VERB [low]`: imports what a verb needs, then runs it as standard input says.

A hub starts the server of a job so before it is asked to train it, and a device its volunteer: PyTorch takes seconds to
import, and some more at the first graph. The arguments come as a line of JSON.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import msgspec

from fedlearn.system.processes import give_way, wait_asleep
from fedlearn.system.waiting import line_of_input

_OF_VERB = {
    "serve": ("fedlearn.commands.train.serve", "export_once"),
    "join": ("fedlearn.commands.join.join", "run_once"),
}
"""The module of a verb, and the function of FIRST_USE that does for the first time what its process will do."""

FIRST_USE = "fedlearn.tasks.torch_graph.first_use"


class Order(msgspec.Struct, frozen=True):
    """What a process is to do."""

    arguments: list[str]
    log: str = ""
    """The file for what it prints; empty: where it printed before."""


def main(given: Sequence[str]) -> NoReturn:
    """Imports, waits for an order, and carries it out; exits at once where standard input ends without one."""
    wait_asleep()
    if "low" in given:
        give_way()
    try:
        _import_for(given[0])
        line = line_of_input()
    except KeyboardInterrupt:
        sys.exit(130)
    if not line:
        sys.exit()
    order = msgspec.json.decode(line, type=Order)
    if order.log:
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
    from fedlearn.commands import command_line

    command_line.main(order.arguments)


def _import_for(verb: str) -> None:
    module, first_use = _OF_VERB[verb]
    with suppress(Exception):  # what is missing or broken is said when it is needed
        import_module(module)
        getattr(import_module(FIRST_USE), first_use)()


if __name__ == "__main__":
    main(sys.argv[1:])

"""`fedlearn pause | go-on | checkpoint | send-away | set | finish | stop RUN`: orders to a running server."""

import argparse
import getpass
import math
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedlearn.commands.arguments import add_run
from fedlearn.coordination.status import RunStatus
from fedlearn.runs.run import load_run_config, task_flag
from fedlearn.runs.status_file import live_status
from fedlearn.server.training.changing import AT_WORK
from fedlearn.storage.durable import StorageError
from fedlearn.storage.orders import (
    Answer,
    Finish,
    GoOn,
    Order,
    OrderFile,
    Pause,
    SendAway,
    Set,
    Stop,
    WriteCheckpoint,
    answer_to,
    give,
    is_taken,
    withdraw,
)
from fedlearn.storage.runs import RunFolder, resolve_run
from fedlearn.storage.status import read_status
from fedlearn.system.invocation import invocation
from fedlearn.terminal import escape

INTERVAL_S = 0.05
TAKEN_WITHIN_S = 10.0
"""Seconds in which a server takes an order, for which it looks once a second."""

ENDED_WITHIN_S = 120.0
"""Seconds in which a server ends: its own volunteers leave, and the last checkpoint is written."""

SILENT_S = 3.0
"""Seconds after which a person is told the reason of the wait."""


add_pause = add_go_on = add_checkpoint = add_stop = add_run
"""Verbs that need to know no more than the run."""


def add_finish(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn finish`."""
    add_run(parser)
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="further steps, in which the learning rate falls to 0 (default: a tenth of all steps where volunteers sum "
        "gradients and no end was set, else 0)",
    )


def add_send_away(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn send-away`."""
    add_run(parser)
    parser.add_argument("who", metavar="NAME", help="the volunteer's name, or the first digits of its identity")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn set`."""
    add_run(parser)
    parser.add_argument("key", metavar="KEY", help=f"one of {', '.join(sorted(AT_WORK))}")
    parser.add_argument("value", metavar="VALUE", help="its value from the next step on that is opened")


def _command(order: type[Pause | GoOn | WriteCheckpoint | Stop]) -> Callable[[argparse.Namespace], int]:
    """The command of a verb that knows no more than its run."""
    return lambda options: _order(options, order(_by()))


pause_command = _command(Pause)
go_on_command = _command(GoOn)
checkpoint_command = _command(WriteCheckpoint)
stop_command = _command(Stop)
"""Commands that return once the order is carried out: the step or the run has ended, the checkpoint is written."""


def finish_command(options: argparse.Namespace) -> int:
    """`fedlearn finish RUN`: returns once the run has ended."""
    return _order(options, Finish(_by(), options.steps))


def send_away_command(options: argparse.Namespace) -> int:
    """`fedlearn send-away RUN NAME`."""
    return _order(options, SendAway(_by(), options.who))


def set_command(options: argparse.Namespace) -> int:
    """`fedlearn set RUN KEY VALUE`."""
    return _order(options, Set(_by(), options.key, options.value))


def _order(options: argparse.Namespace, order: Order) -> int:
    """Gives an order and prints what came of it; 1 where it was refused."""
    folder = resolve_run(Path(options.runs), options.run)
    if live_status(folder) is None:
        flags = f"--resume {shlex.quote(str(folder.path))}{task_flag(folder, load_run_config(folder))}"
        command = f"{invocation('serve')} {flags}"
        raise StorageError(f"run {folder.path.name}: expected a server that runs it, got none; go on with: {command}")
    file = give(folder.orders, order)
    try:
        answer = _ended(folder, within_s=ENDED_WITHIN_S) if isinstance(order, Stop) else _awaited(file, folder)
        if isinstance(order, Finish):
            answer = _finished(answer, file, folder)
    finally:
        withdraw(file)
    print(escape(f"run {folder.path.name}: {answer.text}"), file=sys.stdout if answer.is_done else sys.stderr)
    return 0 if answer.is_done else 1


def _awaited(file: OrderFile, folder: RunFolder) -> Answer:
    begun, has_said = time.monotonic(), False
    while (answer := answer_to(file)) is None:
        waited_s = time.monotonic() - begun
        if live_status(folder) is None:
            # Its last words may have come between the two looks.
            return answer_to(file) or Answer(False, "the server ended before it answered")
        if waited_s > TAKEN_WITHIN_S and not is_taken(file):
            return Answer(False, f"the server did not take the order within {TAKEN_WITHIN_S:g} s; see what it says")
        if waited_s > SILENT_S and not has_said:
            print("waiting for the open step to end; Ctrl-C ends the wait, not the order", file=sys.stderr)
            has_said = True
        time.sleep(INTERVAL_S)
    return answer


def _finished(answer: Answer, file: OrderFile, folder: RunFolder) -> Answer:
    """The answer once the run has ended; the open step may be long, or so short that the answer comes late."""
    if answer.is_done:
        print(escape(f"{answer.text}; Ctrl-C ends the wait, not the order"), file=sys.stderr)
    elif not is_taken(file) or live_status(folder) is not None:
        return answer
    return _ended(folder, within_s=math.inf)


def _ended(folder: RunFolder, *, within_s: float) -> Answer:
    """The answer once the server has ended, whatever it said."""
    begun = time.monotonic()
    while live_status(folder) is not None:
        if time.monotonic() - begun > within_s:
            return Answer(False, f"the server did not end within {within_s:g} s; see what it says")
        time.sleep(INTERVAL_S)
    status = read_status(folder.status, RunStatus)
    return Answer(True, f"{status.reason}, at step {status.step}" if status is not None else "the server has ended")


def _by() -> str:
    """The system's name for the person who gives the order."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # nobody, in some containers
        return "the operator"
    return "".join(c for c in name if c.isprintable())[:64] or "the operator"

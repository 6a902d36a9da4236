"""A run's server from its first line to its last."""

import asyncio
import gc
import shlex
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

from fedlearn.callback import Callback
from fedlearn.config import flag_of
from fedlearn.config.setting import keys_with
from fedlearn.coordination.steps.divergence import DIVERGED, NO_LOSS
from fedlearn.runs.rollback import way_back
from fedlearn.runs.run import Run, task_flag
from fedlearn.runs.status_file import StatusFile, complete_ended
from fedlearn.server.board_process import show_board
from fedlearn.server.local_volunteers import LocalVolunteers
from fedlearn.server.security import ServerSecurity
from fedlearn.server.server import Server
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.task_file import is_task_file
from fedlearn.system.invocation import invocation
from fedlearn.system.waiting import WaitingProcess
from fedlearn.tasks.task import Setting
from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import Bars

COLLECT_AFTER = 20_000
"""Number of new objects that start the collector: a step of hundreds of volunteers makes thousands, most of which are
freed with it."""

OF_NO_USE = 2
"""The exit code where the weights at the end are of no use, since the run diverged or no loss was finite: that of wrong
settings, with which no supervisor starts a server again."""

PAGE_S = 5.0
"""Seconds for which the board's address is waited for, so that it stands in one line with the server's."""

SWEEP_S = 60.0
"""Seconds between two collections of all objects made since the start: connections that ended are cycles, by then old
ones, which the collector would leave for hours."""


def serve(
    trainer: Trainer,
    listening: socket.socket,
    security: ServerSecurity,
    *,
    callbacks: Iterable[Callback] = (),
    next_commands: Sequence[str] = (),
    terminal: Terminal | None = None,
    bars: Bars | None = None,
    ahead: WaitingProcess | None = None,
    usual: Mapping[str, Setting] = MappingProxyType({}),
) -> int:
    """Runs the server until the run ends; gives the exit code.

    `next_commands` are commands to try after training; `ahead` is a volunteer that was started before the run; `usual`
    are settings that a server of this task has unless it is told otherwise.

    Raises:
        StorageError: the disk refuses.
    """
    run, terminal = trainer.run, terminal or Terminal()
    told = [terminal, StatusFile(run.folder.status, terminal.warn), *callbacks]

    seats, n_local = run.config.server.seats, run.config.volunteers.volunteers
    if 0 < n_local < seats:
        terminal.say(
            f"seats = {seats}: a crew of {seats} needs {seats - n_local} more than the {n_local} started here; "
            f"let others join, or start {seats} with --volunteers {seats}"
        )

    async def main() -> str:
        gc.freeze()  # what is there now stays, so it need not be looked at again
        gc.set_threshold(COLLECT_AFTER)
        sweeping = asyncio.create_task(sweep())
        try:
            async with _board(run, terminal) as page:
                server = Server(trainer, told, security, page=page)
                return await server.run(listening, lambda port: _local(run, str(security.local_address(port)), ahead))
        finally:
            sweeping.cancel()

    try:
        reason = asyncio.run(main())
    finally:
        terminal.close()
    conclude(
        trainer,
        terminal,
        bars or Bars(),
        reason=reason,
        next_commands=next_commands,
        usual=usual,
    )
    return OF_NO_USE if reason.startswith((DIVERGED, NO_LOSS)) else 0


def conclude(
    trainer: Trainer,
    terminal: Terminal,
    bars: Bars,
    *,
    reason: str,
    next_commands: Sequence[str],
    usual: Mapping[str, Setting] = MappingProxyType({}),
) -> None:
    """Prints how the run ended, how good the model is, and what to do next."""
    if reason.startswith(NO_LOSS):
        terminal.end(reason)
        return
    saved = f"{reason}; step {trainer.replica.step} is saved"
    if reason.startswith(DIVERGED):  # from where nobody should go on
        terminal.end(f"{saved}; go back to its best step with", command=way_back(trainer.run))
        return
    if trainer.is_searched:  # from where nobody can go on
        more = max(2 * trainer.run.config.strategy.restarts, 3)
        terminal.end(f"{saved} in {trainer.run.folder.path}; --restarts {more} of a new run tries other places, too")
    elif _is_of_script(trainer.run):
        terminal.end(f"{saved} in {trainer.run.folder.path}")
    else:
        terminal.end(f"{saved}; go on with", command=f"{invocation('serve')} {_resume_flags(trainer, usual)}")
    # Whoever stops a server does not want to wait, and without either setting nobody wants the model looked at.
    is_looked_at = trainer.sample_time > 0 or trainer.sample_every > 0
    if trainer.is_complete and is_looked_at and terminal.screen.mode != "quiet":
        with bars.bar("a last look at the model"):
            found = trainer.examine(trainer.copy())
            complete_ended(trainer.run.folder.status, found.figures, found.sample, terminal.warn)
        terminal.show_examined(trainer.replica.step, found.figures, found.sample)
    for number, following in enumerate(next_commands):
        terminal.say("" if number else "try next", command=following)


def _local(run: Run, server: str, ahead: WaitingProcess | None) -> LocalVolunteers:
    task = run.prepared.entry if run.prepared.needs_task else ""
    return LocalVolunteers(run.folder.path, run.config, server=server, task=task, ahead=ahead)


async def sweep() -> None:
    """Collects garbage from time to time."""
    while True:
        await asyncio.sleep(SWEEP_S)
        gc.collect()


@asynccontextmanager
async def _board(run: Run, terminal: Terminal) -> AsyncIterator["asyncio.Future[str]"]:
    """Shows the board while the server runs, where one is wanted; gives the first line that it says, and says the
    others."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    if (port := run.config.server.board) == 0:
        first.set_result("")
        yield first
        return

    def say(line: str) -> None:
        if first.done():
            terminal.say(line)
        else:
            first.set_result(line)

    def give_up() -> None:
        if not first.done():
            first.set_result("")

    board = asyncio.create_task(show_board(run.folder.path.parent, port, say))
    timer = asyncio.get_running_loop().call_later(PAGE_S, give_up)
    try:
        yield first
    finally:
        timer.cancel()
        board.cancel()
        await asyncio.gather(board, return_exceptions=True)


def _is_of_script(run: Run) -> bool:
    """Whether the task is a value of the script that began the run, so that no command can go on with it."""
    return bool(run.prepared.entry) and not is_task_file(run.config.run.task)


def _resume_flags(trainer: Trainer, usual: Mapping[str, Setting]) -> str:
    settings, step = trainer.run.config.run, trainer.replica.step
    flags = f"--resume {shlex.quote(str(trainer.run.folder.path))}{task_flag(trainer.run.folder, trainer.run.config)}"
    # A resumed run takes over nothing of where its server listened, whom it let in, and whom it started.
    for group in (trainer.run.config.server, trainer.run.config.volunteers):
        for key in keys_with(type(group), "of_start"):
            if (value := getattr(group, key)) != usual.get(key, getattr(type(group)(), key)):
                flags += f" {flag_of(key)} {shlex.quote(str(value))}"
    if trainer.has_all_steps:
        flags += f" --steps {2 * step}"
    if trainer.has_all_time:
        # A run that was resumed with a shorter duration may have trained much longer than that.
        flags += f" --duration {2.0 * max(settings.duration, int(trainer.elapsed_s)):.10g}"
    return flags

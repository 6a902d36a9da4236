"""A run's server from its first line to its last."""

import asyncio
import gc
import shlex
import socket

from fedlearn.coordination.divergence import DIVERGED
from fedlearn.server.gate import Gate
from fedlearn.server.local_volunteers import LocalVolunteers
from fedlearn.server.run import Run
from fedlearn.server.server import Server
from fedlearn.server.status_file import StatusFile
from fedlearn.server.trainer import Trainer
from fedlearn.terminal import Terminal

COLLECT_AFTER = 20_000
"""Objects more than before: a step of hundreds of volunteers makes thousands, which end by themselves with it."""

SWEEP_S = 60.0
"""Then all that came since the start is looked through: lines that ended are cycles, and old ones by then, which
the collector would leave for hours."""


def serve(trainer: Trainer, listening: socket.socket, gate: Gate, *, command: str) -> int:
    """Runs the server until the run ends; gives the exit code. `command` are the words that started it.

    Raises StorageError when the disk fails.
    """
    run, terminal = trainer.run, Terminal()
    callbacks = [terminal, StatusFile(run.folder.status, terminal.say)]

    async def main() -> str:
        gc.freeze()  # what is there now stays: nothing of it is looked through again
        gc.set_threshold(COLLECT_AFTER)
        sweeping = asyncio.create_task(sweep())
        try:
            server = Server(trainer, callbacks, gate)
            return await server.run(listening, lambda port: _local(run, str(gate.local_address(port))))
        finally:
            sweeping.cancel()

    reason = asyncio.run(main())
    # From where it diverged to nobody should go on.
    remedy = "" if reason.startswith(DIVERGED) else f"; go on with: {command} {_resume_flags(trainer)}"
    terminal.say(f"{reason}; step {trainer.replica.step} is saved{remedy}")
    return 0


def _local(run: Run, server: str) -> LocalVolunteers:
    task = run.prepared.entry if run.prepared.needs_task else ""
    return LocalVolunteers(run.folder.path, run.config, server=server, task=task)


async def sweep() -> None:
    """Frees for ever what nobody holds any more."""
    while True:
        await asyncio.sleep(SWEEP_S)
        gc.collect()


def _resume_flags(trainer: Trainer) -> str:
    settings, step = trainer.run.config.run, trainer.replica.step
    flags = f"--resume {shlex.quote(str(trainer.run.folder.path))}"
    if 0 < settings.steps <= step:
        flags += f" --steps {2 * step}"
    if 0.0 < settings.duration <= trainer.elapsed_s:
        # Of a run that was resumed with a shorter duration, much more may be over than that.
        flags += f" --duration {2.0 * max(settings.duration, int(trainer.elapsed_s)):.10g}"
    return flags

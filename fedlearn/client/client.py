"""`fedlearn join`: a volunteer that comes back when the line breaks."""

import asyncio
import random
import signal
import threading

from es_core import usable_processors
from fedlearn.client.conversation import Conversation
from fedlearn.coordination.effects import Leave
from fedlearn.net.address import Address
from fedlearn.tasks.named_task import NamedTask
from fedlearn.tasks.task import Device
from fedlearn.terminal import Terminal
from fedlearn.wire.proof import Credentials

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


async def _stay(
    address: Address,
    credentials: Credentials,
    *,
    name: str,
    threads: int,
    once: bool,
    task: NamedTask | None,
    device: Device,
) -> int:
    """Converses again and again until there is a reason not to; gives the exit code."""
    terminal = Terminal()
    stopped = asyncio.Event()
    current: Conversation | None = None

    def interrupt() -> None:
        stopped.set()
        if current is not None:
            current.stop("the volunteer left")

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, interrupt)
    retry_s = FIRST_RETRY_S
    while True:
        has_answer = True
        current = Conversation(
            address, credentials, name=name, threads=threads, task=task, device=device, terminal=terminal
        )
        try:
            terminal.say(f"connecting to {address}")
            leave = await current.run()
        except (OSError, TimeoutError) as error:
            has_answer = False
            leave = Leave(f"no server answers: {error}", is_welcome_back=True, is_refusal=False)
        if current.n_steps:
            retry_s = FIRST_RETRY_S
        summary = f"{leave.reason}; {current.summary}"
        current = None
        if stopped.is_set():
            terminal.say(summary)
            return 0
        if once or not leave.is_welcome_back:
            terminal.say(f"refused: {leave.reason}" if leave.is_refusal else summary)
            return 1 if leave.is_refusal or not has_answer else 0
        # Jitter keeps a thousand volunteers from coming back in the same second.
        wait_s = retry_s * random.uniform(0.5, 1.5)
        terminal.say(f"{leave.reason}; trying again in {wait_s:.0f} s")
        try:
            await asyncio.wait_for(stopped.wait(), wait_s)
            return 0
        except TimeoutError:
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)


def join(
    address: Address,
    credentials: Credentials,
    *,
    name: str,
    threads: int,
    once: bool,
    task: NamedTask | None = None,
    device: Device = "cpu",
) -> int:
    """Volunteers for the run of a server until it ends or Ctrl-C; gives the exit code. 0 threads: all processors.

    `task` is what the server trains, where its code does not travel; trials of PyTorch models run on `device`.
    """
    n_threads = threads or usable_processors()
    return asyncio.run(_stay(address, credentials, name=name, threads=n_threads, once=once, task=task, device=device))

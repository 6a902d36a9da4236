"""`fedlearn join`: a volunteer that comes back when the line breaks, and pauses as its owner wants."""

import asyncio
import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import final

from es_core import usable_processors
from fedlearn.client.conversation import Conversation, computes
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.lending.machine import MachineMonitor, free_bytes
from fedlearn.client.lending.policy import LendingPolicy, reason_to_pause
from fedlearn.client.lending.throttle import CpuThrottle
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.coordination.golden import check_core
from fedlearn.net.address import Address, parse_address
from fedlearn.net.direct import LineAddress
from fedlearn.net.route import Route
from fedlearn.net.silence import why_silent
from fedlearn.storage.credentials import own_identity, read_token
from fedlearn.system.children import NO_ANSWER
from fedlearn.system.keys import keys
from fedlearn.system.signals import GO_ON_SIGNALS, PAUSE_SIGNALS, STOP_SIGNALS, listen
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal import Terminal
from fedlearn.wire.proof import Credentials

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0

WATCH_S = 5.0
"""Seconds between two looks at the state of the machine."""

PARTING_S = 0.9
"""Seconds after which a conversation that ends is cut, whatever it waits for."""

QUIET_S = 30.0
"""Seconds for which the lending policy must hold before the machine is lent again: each return costs the server a
snapshot."""

BY_HAND = "by hand"


@final
class _Stay:
    """Holds one conversation after another until there is a reason to stop."""

    def __init__(
        self,
        route: Route,
        *,
        once: bool,
        give_up_s: float,
        terms: LendingPolicy,
        begin: Callable[[Address, Terminal], Conversation],
        on_leave: Callable[[], None],
        terminal: Terminal,
    ) -> None:
        self._route = route
        self._once, self._terms, self._begin, self._on_leave = once, terms, begin, on_leave
        self._give_up_s = give_up_s
        self._terminal = terminal
        self._watch = MachineMonitor()
        self._stopped = asyncio.Event()
        self._current: Conversation | None = None
        self._conversing: asyncio.Task[Leave] | None = None
        self._is_paused_by_hand = False
        self._out_of_terms = ""
        self._broken_at = -math.inf
        self._parting_word = ""
        self._may_work = asyncio.Event()
        self._may_work.set()

    async def run(self) -> int:
        """Converses until there is a reason to stop; gives the exit code."""
        with ExitStack() as held:
            if threading.current_thread() is threading.main_thread():
                self._listen_to_signals()
                if held.enter_context(self._keys()):
                    self._terminal.say("press p to pause and go on, q to leave")
            self._look()
            watching = asyncio.create_task(self._keep_looking())
            held.callback(watching.cancel)
            return await self._converse()

    async def _converse(self) -> int:
        retry_s, is_hopeless, silent_since, was_answered = FIRST_RETRY_S, True, math.inf, False
        while await self._wait_until_lent():
            leave, has_answer, n_steps, summary = await self._converse_once()
            is_hopeless &= not leave.is_welcome_back
            was_answered |= has_answer
            if n_steps:
                retry_s = FIRST_RETRY_S
                self._route.worked()
            if self._stopped.is_set():
                self._terminal.end(summary)
                return 0
            if self._parting_word:
                told = summary.removeprefix(f"{self._parting_word}; ")  # which was said when it came
                self._terminal.say(f"{told}; it takes part again when it may")
                continue
            is_over = not (leave.is_welcome_back or leave.is_refusal)
            if not (n_steps or is_over) and self._route.failed():
                self._terminal.warn(f"{leave.reason}; trying the next address")
                continue
            if self._once or is_over or is_hopeless:
                self._terminal.end(f"refused: {leave.reason}" if leave.is_refusal else summary)
                return 1 if leave.is_refusal else 0 if was_answered else NO_ANSWER
            silent_since = math.inf if has_answer else min(silent_since, time.monotonic())
            if time.monotonic() - silent_since > self._give_up_s:
                self._terminal.end(f"{summary}; gave up after {self._give_up_s:.0f} s without an answer")
                return 0 if was_answered else NO_ANSWER
            # Jitter keeps a thousand volunteers from coming back in the same second.
            wait_s = retry_s * random.uniform(0.5, 1.5)
            self._terminal.warn(f"{leave.reason}; trying again in {wait_s:.0f} s")
            is_hopeless = True
            try:
                await asyncio.wait_for(self._stopped.wait(), wait_s)
                return 0
            except TimeoutError:
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
        return 0

    async def _converse_once(self) -> tuple[Leave, bool, int, str]:
        """Holds one conversation; gives the reason of its end, whether a server answered, the steps taken, and a
        summary."""
        has_answer = True
        self._parting_word = ""
        self._current = current = self._begin(self._route.address, self._terminal)
        self._terminal.say(f"connecting to {self._route.address}")
        self._conversing = asyncio.create_task(current.run())
        try:
            leave = await self._conversing
        except OSError as error:
            has_answer = False
            why = why_silent(error, self._route.address.place)
            leave = Leave(f"no server answers: {why}", is_welcome_back=True, is_refusal=False)
        except asyncio.CancelledError:
            if not self._conversing.cancelled():
                raise
            leave = Leave(self._parting_word, is_welcome_back=True, is_refusal=False)
        self._current = self._conversing = None
        return leave, has_answer, current.n_steps, f"{leave.reason}; {current.summary}"

    async def _wait_until_lent(self) -> bool:
        """Waits until this machine may work and no computation of an earlier conversation goes on; False: leave."""
        while not self._stopped.is_set():
            if self._may_work.is_set() and not computes():
                return True
            waited_for = [self._stopped] if self._may_work.is_set() else [self._stopped, self._may_work]
            waiting = [asyncio.create_task(event.wait()) for event in waited_for]
            await asyncio.wait(waiting, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        return False

    # ---- what the person and the machine want

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        listen(loop, STOP_SIGNALS, self._leave)
        listen(loop, PAUSE_SIGNALS, self._pause)
        listen(loop, GO_ON_SIGNALS, self._go_on)

    def _keys(self) -> AbstractContextManager[bool]:
        def press(key: str) -> None:
            if key == "q":
                self._leave()
            elif key == "p":
                (self._go_on if self._is_paused_by_hand else self._pause)()

        return keys(press) if threading.current_thread() is threading.main_thread() else nullcontext(False)

    def _leave(self) -> None:
        self._on_leave()
        self._stopped.set()
        self._part("the volunteer left")

    def _part(self, reason: str) -> None:
        """Ends the conversation, which has a moment for its last words."""
        if self._current is not None and self._conversing is not None:
            self._parting_word = reason
            self._current.stop(reason)
            asyncio.get_running_loop().call_later(PARTING_S, self._conversing.cancel)

    def _pause(self) -> None:
        self._is_paused_by_hand = True
        self._decide()

    def _go_on(self) -> None:
        self._is_paused_by_hand = False
        self._decide()

    def _decide(self) -> None:
        """Pauses or continues, by the present facts."""
        reason = BY_HAND if self._is_paused_by_hand else self._out_of_terms
        if not reason:
            if not self._may_work.is_set():
                self._terminal.say("going on; this machine takes part again")
            self._may_work.set()
        elif self._may_work.is_set():
            self._may_work.clear()
            self._terminal.say(f"paused: {reason}")
            # The conversation ends: nobody waits for this machine then, and it is sent nothing.
            self._part(f"paused: {reason}")

    def _look(self) -> None:
        now = time.monotonic()
        reason = reason_to_pause(self._terms, self._watch.facts())
        if reason:
            self._broken_at = now
        if reason or now >= self._broken_at + QUIET_S:
            self._out_of_terms = reason
            self._decide()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self._look()


def join(
    address: Address,
    credentials: Credentials,
    *,
    name: str,
    threads: int,
    once: bool,
    give_up_s: float = math.inf,
    task: NamedTask | None = None,
    missing: str = "",
    device: Device = "cpu",
    terms: LendingPolicy | None = None,
    budget: MemoryBudget | None = None,
    direct: LineAddress | None = None,
    others: Sequence[Address] = (),
    on_leave: Callable[[], None] = lambda: None,
    terminal: Terminal | None = None,
) -> int:
    """Volunteers for a server's run until it ends or Ctrl-C; gives the exit code. 0 threads: all processors.

    The exit code is 1 after a refusal, NO_ANSWER where it left since no server ever answered, and 0 otherwise.

    Where no server admits this machine, `others` are tried in this order, the first again after each disconnection.
    `task` is what the server trains, where its code does not travel; where that cannot be loaded, the server is told
    what is `missing` here, and that is all. Trials of PyTorch models run on `device`. The machine is lent while the
    `terms` are kept, with no more of its memory than the `budget` says. It leaves when no server has answered for
    `give_up_s`. `on_leave` is called when the person wants to leave, who waits for no computation. `direct` is the
    address at which it listens for neighbours in a crew.
    """
    n_processors = usable_processors()
    terms = terms or LendingPolicy()
    is_limited = terms.max_cpu < 1.0
    n_threads = threads or n_processors
    if is_limited:
        n_threads = min(n_threads, math.ceil(terms.max_cpu * n_processors))

    volunteer = VolunteerReplica(n_threads, task=task, missing=missing, device=device, budget=budget)

    def begin(address: Address, terminal: Terminal) -> Conversation:
        return Conversation(
            address,
            credentials,
            name=name,
            threads=n_threads,
            volunteer=volunteer,
            terminal=terminal,
            budget=budget,
            throttle=CpuThrottle(terms.max_cpu, n_processors) if is_limited else None,
            direct=direct,
        )

    route, terminal = Route([address, *others]), terminal or Terminal()
    stay = _Stay(route, once=once, give_up_s=give_up_s, terms=terms, begin=begin, on_leave=on_leave, terminal=terminal)
    return asyncio.run(stay.run())


def join_lent(
    server: str,
    *,
    name: str,
    threads: int,
    share: float,
    give_up_s: float,
    task: NamedTask | None = None,
    token: bytes | None = None,
) -> int:
    """Volunteers as `join` does on a machine whose owner has lent it by starting this; gives the exit code.

    It lends a share of the memory that is free, and works on battery. The token is that of FEDLEARN_TOKEN by default.
    """
    check_core()
    identity = own_identity("", os.environ).identity
    return join(
        parse_address(server),
        Credentials(identity, read_token("", os.environ) if token is None else token),
        name=name,
        threads=threads,
        once=False,
        give_up_s=give_up_s,
        task=task,
        terms=LendingPolicy(on_battery=True),
        budget=MemoryBudget(int(share * free_bytes())),
        terminal=Terminal(plain=True),
    )

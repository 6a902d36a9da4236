"""Signals by what they ask a process to do."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import final

if sys.platform == "win32":
    STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
    PAUSE_SIGNALS: tuple[signal.Signals, ...] = ()
    GO_ON_SIGNALS: tuple[signal.Signals, ...] = ()
    AWAKE_SIGNALS: tuple[signal.Signals, ...] = ()
    _STAY_IGNORED: tuple[signal.Signals, ...] = ()
else:
    STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    PAUSE_SIGNALS = (signal.SIGUSR1,)
    GO_ON_SIGNALS = (signal.SIGUSR2,)
    AWAKE_SIGNALS = (signal.SIGCONT,)  # the process was stopped, and is no longer
    _STAY_IGNORED = (signal.SIGHUP,)  # but SIGINT, which scripts have all ignore that they start by `&`, is heard

Call = Callable[[], object]


@final
class StopRequest(KeyboardInterrupt):
    """Raised in the main thread where a signal other than that of Ctrl-C asks this process to stop.

    Attributes:
        number: the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def listen(loop: asyncio.AbstractEventLoop, numbers: tuple[signal.Signals, ...], call: Call) -> None:
    """Calls `call` in the event loop when one of the signals comes; for the main thread only.

    A SIGHUP that this process ignores stays ignored.
    """

    def awake(number: int, frame: FrameType | None) -> None:
        del number, frame
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(call)

    for number in _heeded(numbers):
        try:
            loop.add_signal_handler(number, call)
        except NotImplementedError:  # raised by the event loops of Windows
            signal.signal(number, awake)


def unlisten(loop: asyncio.AbstractEventLoop, numbers: tuple[signal.Signals, ...]) -> None:
    """Gives the signals their default effect again."""
    for number in numbers:
        try:
            loop.remove_signal_handler(number)
        except NotImplementedError:  # raised by the event loops of Windows
            signal.signal(number, signal.SIG_DFL)


def stop_this_process() -> None:
    """Stops this process as a signal does, from any of its threads."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stop_signals_call(call: Callable[[int], None]) -> Iterator[None]:
    """Calls `call` with the number of a signal that asks this process to stop, for processes without an event loop.

    A SIGHUP that this process ignores stays ignored.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        call(number)

    with _handled_by(handle, _heeded(STOP_SIGNALS)):
        yield


@contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Lets every signal that asks this process to stop interrupt its work as Ctrl-C does, so that it is cleaned up.

    By default the others end a process where it stands. Only the first of them interrupts, since a terminal that is
    closed may send several, and the cleaning is not to be interrupted. A signal that is ignored stays so, as by nohup.
    """
    has_come = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal has_come
        del frame
        if not has_come:
            has_come = True
            raise StopRequest(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    others = [n for n in STOP_SIGNALS if n != signal.SIGINT and signal.getsignal(n) == signal.SIG_DFL]
    with _handled_by(interrupt, others):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None], numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """A context in which these signals have this handler, and afterwards those that they had."""
    before = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _heeded(numbers: tuple[signal.Signals, ...]) -> tuple[signal.Signals, ...]:
    """The signals without those that whoever started this process has it ignore, as nohup does."""
    return tuple(n for n in numbers if n not in _STAY_IGNORED or signal.getsignal(n) != signal.SIG_IGN)


def interrupted_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a process that was interrupted, as shells count it: 128 and the number of the signal."""
    return 128 + (interrupt.number if isinstance(interrupt, StopRequest) else signal.SIGINT)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, for work that can end early; a second Ctrl-C ends the process as usual.

    Outside of the main thread, which alone receives signals, the event stays unset.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def how_it_ended(code: int) -> str:
    """A description of how a process ended, by its exit code."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

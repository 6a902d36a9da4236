import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from fedlearn.system.signals import (
    AWAKE_SIGNALS,
    StopRequest,
    how_it_ended,
    interrupted_code,
    listen,
    stop_signals_call,
    stop_signals_interrupt,
    unlisten,
)
from tests.patience import LIMIT_S


def refuse(*_: object) -> NoReturn:
    raise NotImplementedError


@pytest.fixture(params=["a loop that knows signals", "a loop that does not"])
def hears(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[signal.Signals], bool]:
    """Whether a loop that listens to a signal is called, and not once it no longer does."""
    if request.param == "a loop that does not":
        monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
        monkeypatch.setattr(asyncio.SelectorEventLoop, "remove_signal_handler", refuse)

    async def main(number: signal.Signals) -> bool:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        listen(loop, (number,), heard.set)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        unlisten(loop, (number,))
        return signal.getsignal(number) == signal.SIG_DFL

    return lambda number: asyncio.run(main(number))


def test_a_loop_hears_signals_as_long_as_it_listens(hears: Callable[[signal.Signals], bool]) -> None:
    assert hears(AWAKE_SIGNALS[0])


def test_a_signal_after_the_loops_end_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)

    async def main() -> None:
        listen(asyncio.get_running_loop(), AWAKE_SIGNALS, lambda: None)

    asyncio.run(main())
    try:
        os.kill(os.getpid(), AWAKE_SIGNALS[0])
    finally:
        signal.signal(AWAKE_SIGNALS[0], signal.SIG_DFL)


def test_signals_that_ask_to_stop_are_handed_over_for_a_while() -> None:
    before, heard = signal.getsignal(signal.SIGTERM), list[int]()
    with stop_signals_call(heard.append):
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_ask_to_stop_interrupt_once_for_a_while(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def interrupted() -> None:
        with stop_signals_interrupt():
            try:
                os.kill(os.getpid(), number)
            finally:
                os.kill(os.getpid(), number)  # as of a terminal that is closed, while the work is cleaned up

    with pytest.raises(StopRequest) as raised:
        interrupted()
    assert interrupted_code(raised.value) == 128 + number
    assert signal.getsignal(number) == before


@pytest.fixture
def nohup() -> Iterator[None]:
    """The signal of a closed terminal is ignored, as in what nohup starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("nohup")
def test_closed_terminal_that_is_ignored_does_not_interrupt() -> None:
    with stop_signals_interrupt():
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.usefixtures("nohup")
def test_closed_terminal_that_is_ignored_is_not_handed_over_and_other_signals_are() -> None:
    heard = list[int]()
    with stop_signals_call(heard.append):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.usefixtures("nohup")
def test_a_loop_does_not_hear_a_closed_terminal_that_is_ignored() -> None:
    async def main() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        listen(loop, (signal.SIGHUP,), lambda: pytest.fail("heard"))
        listen(loop, (signal.SIGTERM,), heard.set)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        unlisten(loop, (signal.SIGTERM,))

    asyncio.run(main())


def test_interrupt_by_the_keyboard_has_its_exit_code() -> None:
    assert interrupted_code(KeyboardInterrupt()) == 130


def test_exit_codes_in_words() -> None:
    assert how_it_ended(-9) == "was ended by SIGKILL"
    assert how_it_ended(3) == "ended with exit code 3"

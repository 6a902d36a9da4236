import asyncio
import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar, final

import pytest

from fedlearn.client import client
from fedlearn.client.client import FIRST_RETRY_S, LONGEST_RETRY_S, QUIET_S, join
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.lending.policy import Facts, LendingPolicy
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.net.address import Address
from fedlearn.system.children import NO_ANSWER
from fedlearn.wire.proof import Credentials
from tests.identities import ADA
from tests.patience import LIMIT_S

SERVER = Address("server", 4711, has_tls=True)
LOST = Leave("the connection was closed", is_welcome_back=True, is_refusal=False)
ENDED = Leave("all 9 steps are done", is_welcome_back=False, is_refusal=False)
REFUSED = Leave("task: expected another", is_welcome_back=False, is_refusal=True)
UNREADABLE = Leave("Snapshot: weights: expected an array", is_welcome_back=True, is_refusal=True)
LEFT = Leave("the volunteer left", is_welcome_back=False, is_refusal=False)

Story = tuple[Leave | Exception | Callable[[], Leave], int]
"""How a conversation ends, at once or once it is stopped; and the steps that were taken in it."""


@final
class Conversation:
    """Stands in for real ones: each that is begun ends as the script says next."""

    script: ClassVar[Iterator[Story]] = iter(())
    begun: ClassVar[list[tuple[dict[str, Any], Address, Credentials]]] = []

    def __init__(self, address: Address, credentials: Credentials, **given: Any) -> None:  # noqa: ANN401 (whatever it is given)
        self._given = (given, address, credentials)
        self._end, self.n_steps = next(self.script)
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def summary(self) -> str:
        return f"this machine took {self.n_steps} steps"

    async def run(self) -> Leave:
        self.begun.append(self._given)
        if isinstance(self._end, Exception):
            raise self._end
        if isinstance(self._end, Leave):
            return self._end
        leave = self._end()
        assert await asyncio.wait_for(self._stopped, LIMIT_S) == "the volunteer left"
        return leave

    def stop(self, reason: str) -> None:
        self._stopped.set_result(reason)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Joins, with conversations that go as a script says; gives the exit code."""
    monkeypatch.setattr(client, "Conversation", Conversation)
    monkeypatch.setattr(Conversation, "begun", [])

    def join_scripted(*script: Story, once: bool = False, threads: int = 2, **given: Any) -> int:  # noqa: ANN401
        monkeypatch.setattr(Conversation, "script", iter(script))
        return join(SERVER, ADA, name="Ada", threads=threads, once=once, **given)

    yield join_scripted
    assert next(Conversation.script, None) is None, "not all that was to happen did"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds waited between two conversations, in which no time passes; random factors are 1."""
    waits: list[float] = []

    async def pass_at_once(awaitable: Any, timeout: float) -> None:  # noqa: ANN401 (as asyncio has it)
        awaitable.close()
        waits.append(timeout)
        raise TimeoutError

    def middle(low: float, high: float) -> float:
        assert (low, high) == (0.5, 1.5)
        return 1.0

    monkeypatch.setattr(asyncio, "wait_for", pass_at_once)
    monkeypatch.setattr(random, "uniform", middle)
    return waits


def test_volunteer_waits_ever_longer_for_a_server_that_does_not_answer(
    joined: Callable[..., int], waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = [(ConnectionRefusedError("refused"), 0)] * 8
    assert joined(*nobody, (TimeoutError(), 0), (ENDED, 3)) == 0
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (FIRST_RETRY_S, LONGEST_RETRY_S) == (1, 60)
    shown = capsys.readouterr().out
    assert shown.count(f"connecting to {SERVER}\n") == 10
    assert "no server answers: refused; trying again in 32 s\n" in shown
    assert shown.endswith("all 9 steps are done; this machine took 3 steps\n")


def test_volunteer_gives_up_when_nobody_has_answered_for_long(
    joined: Callable[..., int], waits: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    nobody = (ConnectionRefusedError("refused"), 0)
    assert joined(nobody, nobody, (LOST, 0), nobody, nobody, nobody, give_up_s=12.0) == 0
    assert waits == [1, 2, 4, 8, 16], "silent from second 7 on; at second 15 not yet for long"
    assert capsys.readouterr().out.endswith("; gave up after 12 s without an answer\n")


def test_volunteer_that_nobody_ever_answered_says_so_by_its_exit_code(
    joined: Callable[..., int], waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    nobody, other = (ConnectionRefusedError("refused"), 0), Address("other", 4711, has_tls=True)
    assert joined(nobody, nobody, nobody, give_up_s=2.0) == NO_ANSWER
    assert joined(nobody, nobody, once=True, others=[other]) == NO_ANSWER
    assert joined((LOST, 0), nobody, once=True, others=[other]) == 0


def test_volunteer_that_took_steps_comes_back_soon(joined: Callable[..., int], waits: list[float]) -> None:
    assert joined((LOST, 0), (LOST, 0), (LOST, 5), (LOST, 0), (LOST, 0), (ENDED, 0)) == 0
    assert waits == [1, 2, 1, 2, 4]


def test_volunteers_do_not_come_back_in_the_same_second(
    joined: Callable[..., int], waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = iter([0.5, 1.5, 0.75])
    monkeypatch.setattr(random, "uniform", lambda *_: next(factors))
    joined((LOST, 0), (LOST, 0), (LOST, 0), (ENDED, 0))
    assert waits == [0.5, 3.0, 3.0]


@pytest.mark.parametrize(
    ("end", "once", "code"),
    [
        (ENDED, False, 0),
        (ENDED, True, 0),
        (REFUSED, False, 1),
        (REFUSED, True, 1),
        (LOST, True, 0),
        (UNREADABLE, True, 1),
        (ConnectionRefusedError("refused"), True, NO_ANSWER),
    ],
)
def test_exit_code_says_whether_it_went_well(
    joined: Callable[..., int], end: Leave | Exception, once: bool, code: int
) -> None:
    assert joined((end, 0), once=once) == code
    assert len(Conversation.begun) == 1


def test_refusal_is_told_as_such(joined: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    joined((REFUSED, 0))
    assert capsys.readouterr().out.endswith("\nrefused: task: expected another\n")


@pytest.mark.parametrize(("threads", "told"), [(0, 5), (3, 3)])
def test_conversation_has_the_name_and_all_processors_unless_told_otherwise(
    joined: Callable[..., int], monkeypatch: pytest.MonkeyPatch, threads: int, told: int
) -> None:
    monkeypatch.setattr(client, "usable_processors", lambda: 5)
    joined((ENDED, 0), threads=threads)
    ((given, address, credentials),) = Conversation.begun
    assert (given["name"], given["threads"]) == ("Ada", told)
    assert isinstance(given["volunteer"], VolunteerReplica)
    assert (address, credentials) == (SERVER, ADA)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_conversation_and_the_client(
    joined: Callable[..., int], number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> Leave:
        os.kill(os.getpid(), number)
        return LEFT

    assert joined((interrupt, 4)) == 0
    assert capsys.readouterr().out.endswith("the volunteer left; this machine took 4 steps\n")


def test_volunteer_who_left_does_not_come_back_though_the_line_broke_first(
    joined: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> Leave:
        os.kill(os.getpid(), signal.SIGTERM)
        return LOST

    assert joined((interrupt, 4)) == 0
    assert capsys.readouterr().out.endswith("\nthe connection was closed; this machine took 4 steps\n")


def test_signal_ends_the_wait_for_a_server(joined: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: float) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return LIMIT_S

    monkeypatch.setattr(random, "uniform", interrupt)
    assert joined((LOST, 2)) == 0


def test_client_may_run_outside_the_main_thread(joined: Callable[..., int]) -> None:
    """Where no handler of signals can be set."""
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(joined, (ENDED, 0)).result(LIMIT_S) == 0


def test_client_in_a_thread_finds_nobody_at_a_closed_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ThreadPoolExecutor(1) as executor:
        joining = executor.submit(join, Address("127.0.0.1", port), ADA, name="Ada", threads=1, once=True)
        assert joining.result(LIMIT_S) == NO_ANSWER
    assert f"no server answers: nothing listens at 127.0.0.1:{port}" in capsys.readouterr().out


def paused_by_signal() -> Leave:
    """The pause is over once it is seen to have begun."""
    os.kill(os.getpid(), signal.SIGUSR1)
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGUSR2)
    return Leave("paused: by hand", is_welcome_back=False, is_refusal=False)


def test_pause_ends_the_conversation_and_another_begins_without_a_wait(
    joined: Callable[..., int], waits: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Conversation, "run", run_to_any_end)
    assert joined((paused_by_signal, 4), (ENDED, 2)) == 0
    shown = capsys.readouterr().out
    assert shown.count("paused") == shown.count("\npaused: by hand\n") == 1
    assert "\nthis machine took 4 steps; it takes part again when it may\n" in shown
    assert "going on; this machine takes part again\n" in shown
    assert shown.endswith("all 9 steps are done; this machine took 2 steps\n")
    assert waits == []


async def run_to_any_end(self: Conversation) -> Leave:
    self.begun.append(self._given)
    if isinstance(self._end, Leave):
        return self._end
    assert not isinstance(self._end, Exception)
    leave = self._end()
    assert await self._stopped == "paused: by hand"
    return leave


class Machine:
    """Facts that a test writes down; each look takes the next ones, the last ones again and again."""

    def __init__(self, *facts: Facts) -> None:
        self._facts = list(facts)

    def facts(self) -> Facts:
        return self._facts.pop(0) if len(self._facts) > 1 else self._facts[0]


ON_MAINS, ON_BATTERY = Facts(0, False, 0.0), Facts(0, True, 0.0)


def test_machine_out_of_its_terms_is_lent_only_when_they_were_kept_for_a_while(
    joined: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(ON_BATTERY, ON_MAINS, ON_BATTERY, ON_MAINS)
    clock = iter(range(0, 10**6, 10))
    looks: list[int] = []

    def now() -> float:
        looks.append(next(clock))
        return looks[-1]

    monkeypatch.setattr(client, "MachineMonitor", lambda: machine)
    monkeypatch.setattr(client, "WATCH_S", 0.0)
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=now))
    assert joined((ENDED, 3)) == 0
    # On battery at 0 and 20 s, and half a minute later.
    assert looks[:6] == [0, 10, 20, 30, 40, 50]
    shown = capsys.readouterr().out
    assert shown.startswith("paused: running on battery\ngoing on; this machine takes part again\nconnecting")
    assert QUIET_S == 30.0


def test_computation_that_was_left_behind_is_waited_for(
    joined: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, True, False])
    monkeypatch.setattr(client, "computes", lambda: next(answers))
    assert joined((ENDED, 3)) == 0
    assert next(answers, None) is None


def test_conversation_that_does_not_end_is_cut(
    joined: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def never(self: Conversation) -> Leave:
        del self
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Conversation, "run", never)
    monkeypatch.setattr(client, "PARTING_S", 0.01)
    assert joined((ENDED, 0)) == 0
    assert capsys.readouterr().out.endswith("the volunteer left; this machine took 0 steps\n")


@pytest.mark.parametrize(("share", "threads", "told"), [(0.5, 0, 4), (0.5, 2, 2), (0.3, 0, 3), (1.0, 9, 9)])
def test_share_of_the_processors_limits_threads(
    monkeypatch: pytest.MonkeyPatch, share: float, threads: int, told: int
) -> None:
    monkeypatch.setattr(client, "Conversation", Conversation)
    monkeypatch.setattr(Conversation, "begun", [])
    monkeypatch.setattr(Conversation, "script", iter([(ENDED, 0)]))
    monkeypatch.setattr(client, "usable_processors", lambda: 8)
    join(
        SERVER, ADA, name="Ada", threads=threads, once=True, terms=LendingPolicy(max_cpu=share), budget=MemoryBudget(7)
    )
    ((given, _, _),) = Conversation.begun
    assert given["threads"] == told
    assert (given["throttle"] is None) == (share == 1.0)
    assert given["budget"] == MemoryBudget(7)


def test_person_who_leaves_is_noticed_before_anything_else(joined: Callable[..., int]) -> None:
    noticed: list[str] = []

    def interrupt() -> Leave:
        os.kill(os.getpid(), signal.SIGINT)
        return LEFT

    joined((interrupt, 4), on_leave=lambda: noticed.append("leaving"))
    assert noticed == ["leaving"]


@pytest.mark.usefixtures("waits")
def test_what_is_held_is_kept_over_a_cut(joined: Callable[..., int]) -> None:
    assert joined((LOST, 5), (ENDED, 0)) == 0
    (first, *_), (second, *_) = Conversation.begun
    assert first["volunteer"] is second["volunteer"]


OTHER = Address("other", 4712, has_tls=True)


def addresses() -> list[Address]:
    return [address for _, address, _ in Conversation.begun]


def test_others_are_tried_in_order_and_the_first_again_after_a_cut(
    joined: Callable[..., int], waits: list[float]
) -> None:
    nobody = (ConnectionRefusedError("refused"), 0)
    assert joined(nobody, (LOST, 5), nobody, nobody, (ENDED, 0), others=[OTHER]) == 0
    assert addresses() == [SERVER, OTHER, SERVER, OTHER, SERVER]
    assert waits == [1, 2]


def test_who_is_refused_by_all_gives_up(joined: Callable[..., int], waits: list[float]) -> None:
    assert joined((REFUSED, 0), (REFUSED, 0), others=[OTHER]) == 1
    assert waits == []


def test_who_is_refused_by_one_waits_for_another(joined: Callable[..., int], waits: list[float]) -> None:
    assert joined((LOST, 0), (REFUSED, 0), (ENDED, 1), others=[OTHER]) == 0
    assert addresses() == [SERVER, OTHER, SERVER]
    assert waits == [1]


def test_end_of_a_run_is_the_end_whoever_else_there_is(joined: Callable[..., int]) -> None:
    assert joined((ENDED, 0), others=[OTHER]) == 0

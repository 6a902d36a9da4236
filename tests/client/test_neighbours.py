"""Lines between two seats over sockets on loopback."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import final

import pytest

from fedlearn.client import neighbours
from fedlearn.client.neighbours import NeighbourLines
from fedlearn.coordination.work.work import Heard, LineEvent, Linked, Unlinked
from fedlearn.net.dialing import DialedLine, dial_directly
from fedlearn.net.direct import LineAddress
from fedlearn.wire.messages import Activations, Neighbours, NextSeat, SeatBefore
from fedlearn.wire.proof import Identity
from tests.patience import LIMIT_S

ADA, BOB, EVE = (Identity.of_seed(bytes([number]) * 32) for number in (1, 2, 3))
SAID = Activations(3, 0, 4, bytes(8), bytes(range(200)) * 2000)
LOOPBACK = LineAddress("127.0.0.1")


@final
class Events:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.activations: list[Activations] = []
        self._changed = asyncio.Event()

    def __call__(self, event: LineEvent) -> None:
        match event:
            case Linked():
                self._tell("linked")
            case Unlinked(reason, is_next):
                self._tell(f"{'next' if is_next else 'before'}: {reason}")
            case Heard(activations):
                self.activations.append(activations)
                self._tell("heard")

    async def until(self, event: str) -> str:
        """The first event that contains this."""
        while not (found := [said for said in self.events if event in said]):
            self._changed.clear()
            await self._changed.wait()
        return found[0]

    def _tell(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()


@final
class Pair:
    """Ada before Bob, who listens at `port`."""

    def __init__(self, *, has_tls: bool = False, caller: Identity = ADA) -> None:
        self.ada, self.bob = Events(), Events()
        self.caller = NeighbourLines(caller, LOOPBACK, self.ada, name="Ada", has_tls=has_tls)
        self.called = NeighbourLines(BOB, LOOPBACK, self.bob, name="Bob", has_tls=has_tls)
        self.port = 0

    def call(self, *, number: int = 1, key: Identity = BOB, port: int | None = None) -> None:
        self.caller.link(Neighbours(number, NextSeat("127.0.0.1", port or self.port, key.public_key), None))

    def wait_for(self, *, number: int = 1, key: Identity = ADA, member_bytes: int = 100_000) -> None:
        self.called.link(Neighbours(number, None, SeatBefore(key.public_key, 4, member_bytes, 0)))


def on_a_pair(act: Callable[[Pair], Awaitable[None]], *, has_tls: bool = False, caller: Identity = ADA) -> None:
    async def run() -> None:
        pair = Pair(has_tls=has_tls, caller=caller)
        pair.port = await pair.called.listen()
        try:
            await asyncio.wait_for(act(pair), LIMIT_S)
        finally:
            pair.caller.close()
            pair.called.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("has_tls", [False, True])
def test_activations_arrive_as_they_were_sent(has_tls: bool) -> None:
    async def act(pair: Pair) -> None:
        pair.wait_for()
        pair.call()
        await pair.ada.until("linked")
        for _ in range(3):
            pair.caller.forward(SAID)
        while len(pair.bob.activations) < 3:
            pair.bob.events.clear()
            await pair.bob.until("heard")
        assert pair.bob.activations == [SAID] * 3

    on_a_pair(act, has_tls=has_tls)


def test_who_hears_of_its_neighbour_later_is_reached_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    again, n_calls = asyncio.Event(), 0

    async def count(host: str, port: int, *, has_tls: bool) -> DialedLine:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            again.set()
        return await dial_directly(host, port, has_tls=has_tls)

    monkeypatch.setattr(neighbours, "dial_directly", count)

    async def act(pair: Pair) -> None:
        pair.wait_for(number=0)
        pair.call()
        await again.wait()
        pair.wait_for()
        await pair.ada.until("linked")
        assert pair.ada.events == ["linked"]

    on_a_pair(act)


@pytest.mark.parametrize(
    ("named", "believed", "expected"),
    [(ADA, EVE, "signed by the seat"), (EVE, BOB, "expected the seat that the server named, got another")],
    ids=["called is another", "caller is another"],
)
def test_only_neighbours_that_the_server_named_are_heard(
    monkeypatch: pytest.MonkeyPatch, named: Identity, believed: Identity, expected: str
) -> None:
    monkeypatch.setattr(neighbours, "REACH_S", 0.5)

    async def act(pair: Pair) -> None:
        pair.wait_for(key=named)
        pair.call(key=believed)
        reason = await pair.ada.until("next: the next seat is not reached")
        assert expected in reason
        assert pair.bob.events == []

    on_a_pair(act)


def test_nobody_is_heard_where_no_neighbour_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "REACH_S", 0.5)

    async def act(pair: Pair) -> None:
        pair.call()
        await pair.ada.until("next: the next seat is not reached")
        pair.caller.forward(SAID)
        assert (pair.ada.events[:-1], pair.bob.events) == ([], [])

    on_a_pair(act)


def test_where_nobody_listens_the_reason_says_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "REACH_S", 0.5)

    async def act(pair: Pair) -> None:
        pair.called.close()
        pair.call()
        assert f"nobody answers at 127.0.0.1:{pair.port}" in await pair.ada.until("next")

    on_a_pair(act)


def test_a_line_between_one_with_tls_and_one_without_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "REACH_S", 0.5)

    async def act(pair: Pair) -> None:
        plain = Events()
        caller = NeighbourLines(ADA, LOOPBACK, plain, name="Ada", has_tls=False)
        pair.wait_for()
        caller.link(Neighbours(1, NextSeat("127.0.0.1", pair.port, BOB.public_key), None))
        await plain.until("next: the next seat is not reached")
        caller.close()

    on_a_pair(act, has_tls=True)


def test_both_ends_hear_that_a_line_ended() -> None:
    async def act(pair: Pair) -> None:
        pair.wait_for()
        pair.call()
        await pair.ada.until("linked")
        pair.caller.forward(SAID)
        await pair.bob.until("heard")
        pair.called.close()
        assert "ended" in await pair.ada.until("next")

    on_a_pair(act)


def test_what_is_larger_than_the_plan_says_ends_the_line() -> None:
    async def act(pair: Pair) -> None:
        pair.wait_for(member_bytes=50_000)
        pair.call()
        await pair.ada.until("linked")
        pair.caller.forward(SAID)
        assert "expected at most 204096 bytes" in await pair.bob.until("before")
        assert "expected at most 204096 bytes" in await pair.ada.until("next")
        assert pair.bob.activations == []

    on_a_pair(act)


def test_new_neighbours_take_the_place_of_the_old_without_complaint() -> None:
    async def act(pair: Pair) -> None:
        for number in (1, 2):
            pair.wait_for(number=number)
            pair.call(number=number)
            await pair.ada.until("linked")
            pair.ada.events.clear()
        pair.caller.forward(SAID)
        await pair.bob.until("heard")
        assert (pair.ada.events, pair.bob.events) == ([], ["heard"])

    on_a_pair(act)


def test_strangers_hold_few_places() -> None:
    async def act(pair: Pair) -> None:
        pair.wait_for()
        lines = [await asyncio.open_connection("127.0.0.1", pair.port) for _ in range(neighbours.MAX_CALLERS + 1)]
        reader, _ = lines[-1]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        for _, writer in lines:
            writer.close()
        pair.call()
        await pair.ada.until("linked")

    on_a_pair(act)


def test_callers_that_signed_are_counted_off_once() -> None:
    """Whoever counted them off twice would take in strangers without end."""

    async def act(pair: Pair) -> None:
        for number in range(3):  # each is let go by the next plan
            pair.wait_for(number=number)
            pair.call(number=number)
            await pair.ada.until("linked")
            pair.ada.events.clear()
        pair.caller.close()
        await pair.bob.until("before: the line from the seat before ended")
        assert pair.called._n_callers == 0

    on_a_pair(act)

import asyncio

import pytest

from fedlearn.server import connection_policy as module
from fedlearn.server.connection_policy import RESERVED_FILES, ConnectionPolicy
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import PROTOCOL_VERSION, Farewell, Hello
from tests.net.memory_stream import MemoryStream
from tests.patience import LIMIT_S

resource = pytest.importorskip("resource")


@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [(256, 1024, 1024 - RESERVED_FILES), (1024, 1024, 1024 - RESERVED_FILES), (64, 64, 1), (-1, -1, 10_000)],
)
def test_the_system_sets_how_many_are_let_in(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    door = ConnectionPolicy()
    assert door.max_connections == most
    assert door.objection("192.0.2.7", n_inside=most - 1, now=0.0) == ""
    reason = f"the server is full: it takes {most} connections; come back later"
    assert door.objection("192.0.2.7", n_inside=most, now=0.0) == reason


def test_a_limit_that_can_not_be_raised_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 5000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert ConnectionPolicy().max_connections == 1000 - RESERVED_FILES


def test_who_flooded_is_told_how_long_to_stay_away() -> None:
    door = ConnectionPolicy()
    door.refusals.punish("192.0.2.7", 0.0)
    reason = "a peer at this address sent far too much; come back in 55 s"
    assert door.objection("192.0.2.7", n_inside=0, now=5.0) == reason
    assert door.objection("192.0.2.8", n_inside=0, now=5.0) == ""
    assert door.objection("192.0.2.7", n_inside=0, now=60.0) == ""


async def test_who_is_turned_away_hears_why_before_or_after_its_hello() -> None:
    here, there = MemoryStream.pair()
    turning = asyncio.create_task(ConnectionPolicy().turn_away(here, "it is full", now=0.0))
    client = Connection("client", now=0.0)
    client.send(Hello(PROTOCOL_VERSION, "Ada", 1))
    there.write(client.data_to_send())
    assert client.receive_data(await there.read(4096), 0.0) == [Farewell("try_again", "it is full")]
    there.close()
    await turning


async def test_who_sends_without_end_is_heard_for_a_while_only() -> None:
    n_sent = 2**20
    here, there = MemoryStream.pair(2**30)
    there.write(bytes(n_sent))
    there.close()
    await ConnectionPolicy().turn_away(here, "it is full", now=0.0)
    assert len(await here.read(n_sent)) == n_sent - 2**16


async def test_who_does_not_go_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTING_S", 0.0)
    here, there = MemoryStream.pair()
    async with asyncio.timeout(LIMIT_S):
        await ConnectionPolicy().turn_away(here, "it is full", now=0.0)
    assert await there.read(4096)


async def test_only_so_many_are_turned_away_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURNED_AWAY", 1)
    door, (first, other), (second, silent) = ConnectionPolicy(), MemoryStream.pair(), MemoryStream.pair()
    turning = asyncio.create_task(door.turn_away(first, "it is full", now=0.0))
    assert await other.read(4096)
    await door.turn_away(second, "it is full", now=0.0)
    second.abort()
    assert await silent.read(4096) == b""
    other.close()
    await turning
    third, other = MemoryStream.pair()
    turning = asyncio.create_task(door.turn_away(third, "it is full", now=0.0))
    assert await other.read(4096)
    other.close()
    await turning

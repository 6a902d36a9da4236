"""What a server above says faster than a relay takes it: the conversation ends before the memory does."""

import asyncio
import io
import socket
from typing import Any

import pytest

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.config import ConfigError, ServerSettings
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.address import Address
from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.relay.keeper import RelaySettings
from fedlearn.relay.process import RelayProcess
from fedlearn.server.security import ServerSecurity
from fedlearn.terminal import Terminal
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Message, Proof
from tests.identities import ADA, CHALLENGE
from tests.patience import LIMIT_S


def relay_of(address: Address, budget: MemoryBudget, *, port: int = 0) -> RelayProcess:
    volunteer, terminal = VolunteerReplica(1, budget=budget), Terminal(stream=io.StringIO())
    settings = RelaySettings((address,))
    security = ServerSecurity(ServerSettings(port=port))
    return RelayProcess(volunteer, ADA, security, settings, name="Ada", threads=1, terminal=terminal, budget=budget)


async def test_port_that_is_taken_is_told_before_a_server_is_called() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        relay = relay_of(Address("127.0.0.1", 1), MemoryBudget(), port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"^port: \d+ is taken by another program; .* with --port"):
            await relay.run()


@pytest.mark.parametrize("excess", [0, 1], ids=["within its budget", "beyond"])
async def test_orders_that_pile_up_are_answered_with_goodbye_before_they_take_the_memory(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    budget, heard, over = MemoryBudget(2**20), list[Message](), asyncio.Event()
    monkeypatch.setattr(Worker, "bytes_waiting", property(lambda _: budget.max_waiting_bytes + excess))

    heard_above, failures = asyncio.Event(), list[str]()
    take, fail = RelayProcess._receive, Worker.fail

    def taken(relay: RelayProcess, message: Message) -> None:
        take(relay, message)
        heard_above.set()

    def failed(worker: Worker, reason: str, *, is_welcome_back: bool) -> Any:  # noqa: ANN401 (as in Worker)
        failures.append(reason)
        return fail(worker, reason, is_welcome_back=is_welcome_back)

    monkeypatch.setattr(RelayProcess, "_receive", taken)
    monkeypatch.setattr(Worker, "fail", failed)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(Connection("server", now=0.0), TcpStream(reader, writer), max_queued_bytes=2**20)

        def receive(message: Message) -> None:
            heard.append(message)
            if isinstance(message, Hello):
                channel.send(CHALLENGE)
            elif isinstance(message, Proof) and not excess:
                channel.send(Farewell("refused", "the server takes nobody"))

        await channel.run(receive)
        over.set()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        running = asyncio.create_task(relay_of(Address(host, port), budget).run())
        await heard_above.wait()
        assert len(failures) == excess  # else nobody would end the conversation
        await over.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    reasons = [message.reason for message in heard if isinstance(message, Goodbye)]
    said = "memory: expected orders as fast as this machine takes them, 26"
    assert [reason.startswith(said) for reason in reasons] == [True] * excess

"""What one connection may do to a server over real sockets, and what it costs only itself."""

import asyncio
from contextlib import suppress
from unittest.mock import Mock

import numpy as np
import pytest

from fedlearn.client.conversation import computes
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Leave, Peer, ServerEffect
from fedlearn.es.snapshot import Snapshot
from fedlearn.net import refusals, tls_listener
from fedlearn.net.channel import Channel
from fedlearn.server import budget
from fedlearn.server import connection_policy as door
from fedlearn.server import server as module
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import PROTOCOL_VERSION, Farewell, Hello, Message, Ping, Pong, Resync, Start
from tests.identities import BOB
from tests.run_folders import fit_task
from tests.server.scene import SceneOf


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), RecursionError("deep"), KeyError(3)])
async def test_error_that_a_message_raises_ends_that_connection_only(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = scene_of()
    received = Coordinator.received

    def fail(coordinator: Coordinator, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        if isinstance(message, Hello) and message.name == "Eve":
            raise error
        return received(coordinator, peer, message, now)

    monkeypatch.setattr(Coordinator, "received", fail)
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        leave = await scene.converse(scene.volunteer("Eve"))
        assert leave.is_refusal
        assert leave.reason == f"its Hello raised {type(error).__name__}: {error}"
        await scene.said(f"left: its Hello raised {type(error).__name__}")
        step = scene.trainer.replica.step
        while scene.trainer.replica.step == step:
            await asyncio.sleep(0)
        assert not serving.done()
        assert not conversing.done()


async def test_error_of_a_channel_ends_that_connection_only(scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of()
    monkeypatch.setattr(Channel, "run", Mock(side_effect=RuntimeError("a bug")))
    async with scene.serving() as serving:
        reader, writer = await scene.connect()
        await scene.said("connection 1 left: RuntimeError: a bug")
        assert await reader.read() == b""
        writer.close()
        assert not serving.done()


async def test_flooder_has_to_wait_for_its_turn_and_a_volunteer_gets_in(scene_of: SceneOf) -> None:
    scene = scene_of()
    async with scene.serving():
        _, writer = await scene.connect()
        writer.write(pack(Hello(PROTOCOL_VERSION, "Eve", 1)).frame(0) + 1000 * pack(Ping()).frame(0))
        await scene.said("connection 1 left: messages: expected at most 10 a second")
        writer.close()
        waits: list[float] = []
        turn_s = scene.server._door.refusals.turn_s

        def seen(address: str, now: float) -> float:
            waits.append(turn_s(address, now))
            return waits[-1]

        scene.server._door.refusals.turn_s = seen  # type: ignore[method-assign]
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        assert waits == [pytest.approx(refusals.TURN_S)]
        conversing.cancel()
        await asyncio.gather(conversing, return_exceptions=True)


async def test_address_that_flooded_is_refused_with_the_time_that_is_left(scene_of: SceneOf) -> None:
    scene = scene_of()
    async with scene.serving():
        scene.server._door.objection = lambda *_, **__: "come back in 60 s"  # type: ignore[method-assign]
        leave = await scene.converse(scene.volunteer("Eve"))
        assert leave == Leave("come back in 60 s", is_welcome_back=True, is_refusal=False)


async def test_estimate_of_a_result_may_have_the_bytes_of_the_layout(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(side_effect=Connection)
    monkeypatch.setattr(module, "Connection", made)
    scene = scene_of()
    async with scene.serving():
        _, writer = await scene.connect()
        while not made.called:
            await asyncio.sleep(0)
        writer.close()
    layout = scene.run.prepared.objective.layout
    assert made.call_args.kwargs["estimate_bytes"] == layout.size + len(layout.row_lengths) == 2 * layout.size


async def test_who_keeps_most_waiting_is_dropped_where_memory_is_short(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_INTERVAL_S", 0.0)
    monkeypatch.setattr(budget, "LITTLE_BYTES", 0)
    scene = scene_of()
    async with scene.serving():
        scene.server._max_held_bytes = 10
        _, writer = await scene.connect()
        writer.write(pack(Hello(PROTOCOL_VERSION, "Eve", 1)).frame(0)[:20])
        await scene.said("connection 1 left: it kept too much waiting, slower than others")
        writer.close()


async def test_data_that_are_larger_than_all_that_may_wait_reach_a_volunteer(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_INTERVAL_S", 0.0)
    data = {"x": np.arange(500_000)}
    scene = scene_of(fit_task(loss=lambda *_: 0.0, start={"vector": np.zeros(6)}, data=data), steps=1)
    async with scene.serving() as serving:
        scene.server._max_held_bytes = 10
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        assert "all 1 steps are done" in await serving
        await conversing
    assert "kept too much waiting" not in scene.screen.getvalue()


async def test_message_to_who_has_parted_is_dropped_and_any_other_out_of_turn_ends_its_receiver(
    scene_of: SceneOf,
) -> None:
    scene = scene_of()
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        for _ in range(2):
            scene.server.send(1, Farewell("try_again", "because"))
        scene.server.send(99, Pong())
        assert (await conversing).reason == "because"
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Bob")))
        await scene.said("Bob joined")
        scene.server.send(2, Start(bytes(8), 0, 0, keeps_start=False))
        await scene.said("Bob left: LocalProtocolError: Start: may not be sent")
        await conversing


async def test_connections_beyond_the_most_are_told_to_come_back(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 1)
    scene = scene_of()
    async with scene.serving():
        conversation = scene.volunteer("Ada")
        conversing = asyncio.create_task(scene.converse(conversation))
        await scene.said("Ada joined")
        leave = await scene.converse(scene.volunteer("Eve"))
        assert leave.is_welcome_back
        assert leave.reason == "the server is full: it takes 1 connections; come back later"
        bytes_in, bytes_out = scene.server.traffic()
        conversation.stop("Ctrl-C")
        await conversing
        await scene.said("Ada left: Ctrl-C")
        later_in, later_out = scene.server.traffic()
        assert later_in > bytes_in > 0
        assert later_out >= bytes_out > 0
        again = scene.volunteer("Bob")
        conversing = asyncio.create_task(scene.converse(again))
        await scene.said("Bob joined")
        again.stop("Ctrl-C")
        await conversing


async def test_who_breaks_the_protocol_ends_its_own_connection_only(scene_of: SceneOf) -> None:
    scene = scene_of(steps=30)
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        reader, writer = await scene.connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await reader.read()
        writer.close()
        await conversing
        assert await serving == "all 30 steps are done"
    assert "drifted" not in scene.screen.getvalue()


async def test_who_vanishes_is_not_waited_for(scene_of: SceneOf) -> None:
    scene = scene_of()
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        conversing.cancel()
        await asyncio.gather(conversing, return_exceptions=True)
        await scene.said("Ada left: ")


async def test_handshake_that_does_not_end_is_given_up_and_never_was_a_peer(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "HANDSHAKE_S", 0.05)
    scene = scene_of(tls="on")
    async with scene.serving():
        reader, writer = await scene.connect()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert scene.server._last_peer == 0
        writer.close()


async def test_limits_are_those_of_the_address_that_connects(scene_of: SceneOf) -> None:
    scene = scene_of(connections_per_address=1)
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("Ada joined")
        leave = await scene.converse(scene.volunteer("Bob", BOB))
        assert leave.is_welcome_back
        assert "connections: expected at most 1 from one address" in leave.reason
        assert list(scene.server._coordinator._people._admission._by_network) == ["loopback"]
        conversing.cancel()
        await asyncio.gather(conversing, return_exceptions=True)


async def test_volunteer_that_was_cut_off_catches_up_with_what_it_missed(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(fit_task(start={"vector": np.zeros(6), "wide": np.zeros(10_000)}))
    sent: list[Message] = []
    send = Channel.send

    def note(channel: Channel, message: Message, parcel: Parcel | None = None) -> None:
        sent.append(message)
        send(channel, message, parcel)

    async with scene.serving():
        volunteer = VolunteerReplica(1, task=scene.task)
        cut = asyncio.create_task(scene.converse(scene.volunteer("Ada", volunteer=volunteer)))
        while scene.trainer.replica.step < 3:
            await asyncio.sleep(0)
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
        await scene.said("Ada left")
        while computes():
            await asyncio.sleep(0)
        monkeypatch.setattr(Channel, "send", note)
        held, reached = volunteer.held, scene.trainer.replica.step
        back = asyncio.create_task(scene.converse(scene.volunteer("Ada", volunteer=volunteer)))
        while scene.trainer.replica.step < reached + 2:
            await asyncio.sleep(0)
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
    assert held is not None
    starts = [message for message in sent if isinstance(message, Start | Snapshot)]
    assert starts == [Start(held.digest, held.step, starts[0].step, keeps_start=False)]
    assert held.step > 0


async def test_volunteer_that_falls_behind_goes_on_from_the_weights(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of()
    sent: list[type] = []
    send, waiting = Channel.send, [module.LEAST_LAG_BYTES]

    def note(channel: Channel, message: Message, parcel: Parcel | None = None) -> None:
        sent.append(type(message))
        send(channel, message, parcel)

    monkeypatch.setattr(module, "BUDGET_INTERVAL_S", 0.0)
    monkeypatch.setattr(Channel, "send", note)
    monkeypatch.setattr(Connection, "update_bytes_queued", property(lambda _: waiting[0]))
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        while scene.trainer.replica.step < 3:
            await asyncio.sleep(0)
        assert Resync not in sent
        waiting[0] += 1
        while Resync not in sent:
            await asyncio.sleep(0)
        waiting[0] = 0
        reached = scene.trainer.replica.step
        while scene.trainer.replica.step < reached + 3:
            await asyncio.sleep(0)
        conversing.cancel()
        await asyncio.gather(conversing, return_exceptions=True)
    synchronised = [kind for kind in sent[sent.index(Resync) :] if kind in (Resync, Snapshot, Start)]
    assert synchronised == [Resync, Snapshot]
    assert scene.screen.getvalue().count("joined") == 1

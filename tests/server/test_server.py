"""The server over real sockets, in this process."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, final
from unittest.mock import Mock

import numpy as np
import pytest

from fedlearn.client.conversation import Conversation, computes
from fedlearn.client.volunteer import Volunteer
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Leave, Peer, ServerEffect
from fedlearn.es.snapshot import Snapshot
from fedlearn.net import refusals, tls_listener
from fedlearn.net.channel import Channel
from fedlearn.server import budget, door
from fedlearn.server import server as module
from fedlearn.server.gate import open_gate
from fedlearn.server.listening import listen
from fedlearn.server.run import Run
from fedlearn.server.server import Server
from fedlearn.server.trainer import Trainer
from fedlearn.storage.durable import StorageError
from fedlearn.storage.metrics import read_last_metrics
from fedlearn.tasks.named_task import NamedTask
from fedlearn.terminal import Terminal
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import PROTOCOL_VERSION, Farewell, Hello, Message, Ping, Pong, Resync, Start
from fedlearn.wire.parcel import Parcel, pack
from fedlearn.wire.proof import Credentials
from tests.identities import ADA, BOB
from tests.runs import created, fit_task, task_config

LIMIT_S = 30.0


@final
class Local:
    """Stands in for the volunteers of a server's own machine."""

    def __init__(self) -> None:
        self.unsaid: list[str] = []
        self.is_stopped = False

    def problems(self) -> list[str]:
        said, self.unsaid = self.unsaid, []
        return said

    n_started = 0

    def stop(self) -> None:
        self.is_stopped = True


@final
class Scene:
    """A server of a run, at work in a task of its own while the scene is open."""

    def __init__(self, run: Run, task: NamedTask) -> None:
        self.run, self.task = run, task
        self.gate = open_gate(run.config.server, run.folder.path, {})
        self.trainer, _ = Trainer.open(run)
        self.screen, self.local = io.StringIO(), Local()
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["asyncio.Task[str]"]:
        """The server's task, which gives why the run ended."""
        self.server = Server(self.trainer, Terminal(stream=self.screen), self.gate)
        with listen("127.0.0.1", 0) as listening:
            self.port = listening.getsockname()[1]
            local: Any = self.local
            serving = asyncio.create_task(self.server.run(listening, lambda _: local))
            try:
                async with asyncio.timeout(LIMIT_S):
                    yield serving
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    def volunteer(self, name: str, credentials: Credentials = ADA, volunteer: Volunteer | None = None) -> Conversation:
        terminal = Terminal(stream=io.StringIO())
        address = self.gate.local_address(self.port)
        volunteer = volunteer or Volunteer(1, task=self.task)
        return Conversation(address, credentials, name=name, threads=1, volunteer=volunteer, terminal=terminal)

    async def converse(self, conversation: Conversation) -> Leave:
        return await conversation.run()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def said(self, text: str) -> None:
        """Until the server's terminal shows this."""
        while text not in self.screen.getvalue():
            await asyncio.sleep(0)


SceneOf = Callable[..., Scene]


@pytest.fixture
def scene_of(tmp_path: Path) -> Iterator[SceneOf]:
    scenes = []

    def opened(task: NamedTask | None = None, **settings: Any) -> Scene:  # noqa: ANN401 (values of any setting)
        task = task or fit_task()
        scenes.append(Scene(created(task_config(tmp_path, volunteers=0, sample_time=0.0), task, **settings), task))
        return scenes[-1]

    yield opened
    for scene in scenes:
        scene.trainer.close()


def test_volunteers_join_train_and_go_when_the_run_ends(scene_of: SceneOf) -> None:
    scene = scene_of(steps=3)

    async def main() -> None:
        async with scene.serving() as serving:
            conversations = [scene.volunteer(name) for name in ("Ada", "Bob")]
            leaves = await asyncio.gather(*map(scene.converse, conversations))
            assert await serving == "all 3 steps are done"
            assert leaves == [Leave("all 3 steps are done", is_welcome_back=False, is_refusal=False)] * 2
            digest = scene.trainer.replica.digest.hex()
            assert "to step 3 with digest " + digest in conversations[0].summary

    asyncio.run(main())
    assert [metrics.step for metrics in read_last_metrics(scene.run.folder.metrics, 9)] == [0, 1, 2]
    assert all(metrics.bytes_in > 0 for metrics in read_last_metrics(scene.run.folder.metrics, 9))
    assert [path.stem for path in scene.run.folder.checkpoints.iterdir()] == ["000000000003"]
    shown = scene.screen.getvalue()
    command = f"fedlearn join --task fit.py:task 127.0.0.1:{scene.port}"
    assert shown.startswith(f"listening on 127.0.0.1:{scene.port}; join with: {command}\nwaiting for volunteers\n")
    assert "Ada joined" in shown
    assert scene.local.is_stopped


def test_server_that_is_stopped_is_looked_for_again(scene_of: SceneOf) -> None:
    scene = scene_of()

    async def main() -> None:
        async with scene.serving() as serving:
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            await scene.said("step ")
            scene.server.stop("Ctrl-C")
            assert await serving == "Ctrl-C"
            assert await conversing == Leave("Ctrl-C", is_welcome_back=True, is_refusal=False)

    asyncio.run(main())
    assert scene.trainer.replica.step > 0


@pytest.mark.parametrize(
    ("work", "is_complete"),
    [("append", False), ("apply", False), ("record", False), ("weights_messages", False), ("save_checkpoint", True)],
)
def test_disk_that_fails_ends_the_server(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch, work: str, is_complete: bool
) -> None:
    scene = scene_of(steps=1)
    monkeypatch.setattr(scene.trainer, work, Mock(side_effect=StorageError("the disk is full")))

    async def main() -> None:
        async with scene.serving() as serving:
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            with pytest.raises(StorageError, match="the disk is full"):
                await serving
            leave = await conversing
            assert leave.is_welcome_back is not is_complete

    asyncio.run(main())
    assert scene.trainer.replica.step == (work in ("record", "save_checkpoint"))  # nothing happens after the failure
    assert scene.local.is_stopped


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), RecursionError("deep"), KeyError(3)])
def test_error_that_a_message_raises_ends_that_connection_only(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = scene_of()
    received = Coordinator.received

    def fail(coordinator: Coordinator, peer: Peer, message: Message, now: float) -> list[ServerEffect]:
        if isinstance(message, Hello) and message.name == "Eve":
            raise error
        return received(coordinator, peer, message, now)

    monkeypatch.setattr(Coordinator, "received", fail)

    async def main() -> None:
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

    asyncio.run(main())


def test_error_of_a_channel_ends_that_connection_only(scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of()
    monkeypatch.setattr(Channel, "run", Mock(side_effect=RuntimeError("a bug")))

    async def main() -> None:
        async with scene.serving() as serving:
            reader, writer = await scene.connect()
            await scene.said("connection 1 left: RuntimeError: a bug")
            assert await reader.read() == b""
            writer.close()
            assert not serving.done()

    asyncio.run(main())


def test_flooder_has_to_wait_for_its_turn_and_a_volunteer_gets_in(scene_of: SceneOf) -> None:
    scene = scene_of()

    async def main() -> None:
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

    asyncio.run(main())


def test_address_that_flooded_is_refused_with_the_time_that_is_left(scene_of: SceneOf) -> None:
    scene = scene_of()

    async def main() -> None:
        async with scene.serving():
            scene.server._door.objection = lambda *_, **__: "come back in 60 s"  # type: ignore[method-assign]
            leave = await scene.converse(scene.volunteer("Eve"))
            assert leave == Leave("come back in 60 s", is_welcome_back=True, is_refusal=False)

    asyncio.run(main())


def test_estimate_of_a_result_may_have_the_bytes_of_the_layout(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(side_effect=Connection)
    monkeypatch.setattr(module, "Connection", made)
    scene = scene_of()

    async def main() -> None:
        async with scene.serving():
            _, writer = await scene.connect()
            while not made.called:
                await asyncio.sleep(0)
            writer.close()

    asyncio.run(main())
    layout = scene.run.prepared.objective.layout
    assert made.call_args.kwargs["estimate_bytes"] == layout.size + len(layout.row_lengths) == 2 * layout.size


def test_who_keeps_most_waiting_is_dropped_where_memory_is_short(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_INTERVAL_S", 0.0)
    monkeypatch.setattr(budget, "LITTLE_BYTES", 0)
    scene = scene_of()

    async def main() -> None:
        async with scene.serving():
            scene.server._max_held_bytes = 10
            _, writer = await scene.connect()
            writer.write(pack(Hello(PROTOCOL_VERSION, "Eve", 1)).frame(0)[:20])
            await scene.said("connection 1 left: it kept too much waiting, slower than others")
            writer.close()

    asyncio.run(main())


def test_run_that_is_complete_ends_without_anybody(scene_of: SceneOf) -> None:
    scene = scene_of(step_num=5, steps=5)

    async def main() -> None:
        async with scene.serving() as serving:
            assert await serving == "all 5 steps are done"

    asyncio.run(main())


def test_server_may_run_outside_the_main_thread(scene_of: SceneOf) -> None:
    """Where no handler of signals can be set."""
    scene = scene_of(step_num=5, steps=5)

    async def main() -> str:
        async with scene.serving() as serving:
            return await serving

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(asyncio.run, main()).result(LIMIT_S) == "all 5 steps are done"


def test_work_waits_for_the_work_before_it(scene_of: SceneOf) -> None:
    scene = scene_of()
    second_began = threading.Event()
    done: list[str] = []

    async def main() -> None:
        async with scene.serving():
            await scene.said("listening")
            scene.server.work(lambda: second_began.wait(0.1), lambda overtaken: done.append(f"overtaken: {overtaken}"))
            scene.server.work(second_began.set, lambda _: done.append("second"))
            while len(done) < 2:
                await asyncio.sleep(0)

    asyncio.run(main())
    assert done == ["overtaken: False", "second"]


def test_message_to_who_has_parted_is_dropped_and_any_other_out_of_turn_ends_its_receiver(scene_of: SceneOf) -> None:
    scene = scene_of()

    async def main() -> None:
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

    asyncio.run(main())


def test_connections_beyond_the_most_are_told_to_come_back(scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 1)
    scene = scene_of()

    async def main() -> None:
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

    asyncio.run(main())


def test_who_breaks_the_protocol_ends_its_own_connection_only(scene_of: SceneOf) -> None:
    scene = scene_of(steps=30)

    async def main() -> None:
        async with scene.serving() as serving:
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            await scene.said("Ada joined")
            reader, writer = await scene.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
            await reader.read()
            writer.close()
            await conversing
            assert await serving == "all 30 steps are done"

    asyncio.run(main())
    assert "drifted" not in scene.screen.getvalue()


def test_who_vanishes_is_not_waited_for(scene_of: SceneOf) -> None:
    scene = scene_of()

    async def main() -> None:
        async with scene.serving():
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            await scene.said("Ada joined")
            conversing.cancel()
            await asyncio.gather(conversing, return_exceptions=True)
            await scene.said("Ada left: ")

    asyncio.run(main())


def test_volunteer_with_another_task_is_told_why_it_can_not_take_part(scene_of: SceneOf) -> None:
    scene = scene_of()
    scene.task = fit_task(start={"vector": [0.0] * 7})

    async def main() -> None:
        async with scene.serving():
            leave = await scene.converse(scene.volunteer("Ada"))
            assert leave.is_refusal
            assert "task: expected the server's tensors, got other ones" in leave.reason
            await scene.said("Ada left: task: expected the server's tensors, got other ones")

    asyncio.run(main())


def test_model_is_looked_at_beside_the_training(scene_of: SceneOf) -> None:
    scene = scene_of(sample_time=1e-6)

    async def main() -> None:
        async with scene.serving() as serving:
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            await scene.said("validation loss -")
            while not any(metrics.validation for metrics in read_last_metrics(scene.run.folder.metrics, 99)):
                await asyncio.sleep(0)
            scene.server.stop("Ctrl-C")
            await asyncio.gather(serving, conversing)

    asyncio.run(main())
    assert "it writes" not in scene.screen.getvalue()


def test_what_goes_wrong_with_local_volunteers_is_said(scene_of: SceneOf) -> None:
    scene = scene_of()
    scene.local.unsaid = ["the local volunteer local-1 ended with exit code 7"]

    async def main() -> None:
        async with scene.serving():
            await scene.said("ended with exit code 7\n")

    asyncio.run(main())
    assert scene.local.is_stopped


def test_line_is_encrypted_where_the_settings_say_so(scene_of: SceneOf) -> None:
    scene = scene_of(steps=3, tls="on")

    async def main() -> None:
        async with scene.serving() as serving:
            leave = await scene.converse(scene.volunteer("Ada"))
            assert leave.reason == await serving == "all 3 steps are done"

    asyncio.run(main())
    assert f"fit.py:task fedlearn://127.0.0.1:{scene.port}/1#" in scene.screen.getvalue()


def test_handshake_that_does_not_end_is_given_up_and_never_was_a_peer(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "HANDSHAKE_S", 0.05)
    scene = scene_of(tls="on")

    async def main() -> None:
        async with scene.serving():
            reader, writer = await scene.connect()
            with suppress(ConnectionError):
                assert await reader.read() == b""
            assert scene.server._last_peer == 0
            writer.close()

    asyncio.run(main())


def test_limits_are_those_of_the_address_that_connects(scene_of: SceneOf) -> None:
    scene = scene_of(connections_per_address=1)

    async def main() -> None:
        async with scene.serving():
            conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
            await scene.said("Ada joined")
            leave = await scene.converse(scene.volunteer("Bob", BOB))
            assert leave.is_welcome_back
            assert "connections: expected at most 1 from an address" in leave.reason
            assert list(scene.server._coordinator._entrance._admission._by_network) == ["loopback"]
            conversing.cancel()
            await asyncio.gather(conversing, return_exceptions=True)

    asyncio.run(main())


def test_volunteer_that_was_cut_off_catches_up_with_what_it_missed(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(fit_task(start={"vector": np.zeros(6), "wide": np.zeros(10_000)}))
    sent: list[Message] = []
    send = Channel.send

    def note(channel: Channel, message: Message, parcel: Parcel | None = None) -> None:
        sent.append(message)
        send(channel, message, parcel)

    async def main() -> None:
        async with scene.serving():
            volunteer = Volunteer(1, task=scene.task)
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

    asyncio.run(main())


def test_volunteer_that_falls_behind_goes_on_from_the_weights(
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

    async def main() -> None:
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

    asyncio.run(main())
    synchronised = [kind for kind in sent[sent.index(Resync) :] if kind in (Resync, Snapshot, Start)]
    assert synchronised == [Resync, Snapshot]
    assert scene.screen.getvalue().count("joined") == 1

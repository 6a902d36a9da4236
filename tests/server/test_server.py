"""The server over real sockets, in this process."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import final
from unittest.mock import Mock

import msgspec
import pytest

from fedlearn.callback import Callback
from fedlearn.coordination.effects import Leave, ServerEffect
from fedlearn.coordination.status import RunStatus
from fedlearn.server.performer import ServerPerformer
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.storage.status import read_status
from fedlearn.system.invocation import invocation
from tests.patience import LIMIT_S
from tests.run_folders import fit_task
from tests.server.scene import SceneOf


async def test_volunteers_join_train_and_go_when_the_run_ends(scene_of: SceneOf) -> None:
    scene = scene_of(steps=3)
    async with scene.serving() as serving:
        conversations = [scene.volunteer(name) for name in ("Ada", "Bob")]
        leaves = await asyncio.gather(*map(scene.converse, conversations))
        assert await serving == "all 3 steps are done"
        assert leaves == [Leave("all 3 steps are done", is_welcome_back=False, is_refusal=False)] * 2
        digest = scene.trainer.replica.digest.hex()
        assert "to step 3 with digest " + digest in conversations[0].summary
    assert [metrics.step for metrics in read_last_metrics(scene.run.folder.metrics, 9)] == [0, 1, 2]
    assert all(metrics.bytes_in > 0 for metrics in read_last_metrics(scene.run.folder.metrics, 9))
    assert [path.stem for path in scene.run.folder.checkpoints.iterdir()] == ["000000000003"]
    shown = scene.screen.getvalue()
    command = f"{invocation('join')} --task fit.py:task 127.0.0.1:{scene.port}"
    listening, waiting, *_ = shown.splitlines()
    others = "--host 0.0.0.0 lets others in"
    assert listening == f"listening on 127.0.0.1:{scene.port} ({others}); join with: {command}"
    assert waiting == "waiting for volunteers"
    assert "Ada joined" in shown or "Bob joined" in shown  # the other one may come after the last step
    assert scene.local.is_stopped


async def test_a_server_that_trains_alone_says_where_it_is_and_where_it_is_seen_in_one_line(scene_of: SceneOf) -> None:
    scene = scene_of(step_num=5, steps=5)
    scene.local.n_started, scene.page = 1, asyncio.get_running_loop().create_future()
    scene.page.set_result("see it in a browser: http://127.0.0.1:5/")
    async with scene.serving() as serving:
        await serving
    listening = f"listening on 127.0.0.1:{scene.port} (--host 0.0.0.0 lets others in)"
    assert scene.screen.getvalue().splitlines() == [f"{listening}; see it in a browser: http://127.0.0.1:5/"]


async def test_a_server_that_trains_alone_tells_of_secrets_that_others_can_read(scene_of: SceneOf) -> None:
    scene = scene_of(step_num=5, steps=5)
    scene.local.n_started = 1
    scene.security = msgspec.structs.replace(scene.security, exposures=("token: others can read it",))
    async with scene.serving() as serving:
        await serving
    assert scene.screen.getvalue().splitlines()[1] == "token: others can read it"


async def test_an_address_of_version_6_is_said_as_it_is_dialled(scene_of: SceneOf) -> None:
    scene = scene_of(host="::1", step_num=5, steps=5)
    scene.local.n_started = 1
    async with scene.serving() as serving:
        await serving
    assert scene.screen.getvalue().startswith(f"listening on [::1]:{scene.port} (--host")


async def test_whoever_waits_for_others_hears_how_they_join_before_there_is_a_page(scene_of: SceneOf) -> None:
    scene = scene_of()
    scene.page = asyncio.get_running_loop().create_future()
    async with scene.serving():
        await scene.said("waiting for volunteers")
        assert f"join with: {invocation('join')} --task" in scene.screen.getvalue()
        scene.page.set_result("see it in a browser")
        await scene.said("waiting for volunteers\nsee it in a browser\n")


async def test_local_volunteers_that_go_when_the_run_ends_are_no_problem(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has a second of work left after the last step, and looks after them meanwhile."""
    scene, ticks = scene_of(step_num=5, steps=5), threading.Semaphore(0)
    tick, ending = ServerPerformer.tick, scene.trainer.ending

    def counted(performer: ServerPerformer) -> list[ServerEffect]:
        ticks.release()
        return tick(performer)

    def slowly(reason: str) -> str:
        scene.local.unsaid.append("local-1 ended with exit code 0")
        assert all(ticks.acquire(timeout=LIMIT_S) for _ in range(5))
        return ending(reason)

    monkeypatch.setattr(ServerPerformer, "tick", counted)
    monkeypatch.setattr(scene.trainer, "ending", slowly)
    async with scene.serving() as serving:
        assert await serving == "all 5 steps are done"
    assert "exit code" not in scene.screen.getvalue()


async def test_server_that_is_stopped_is_looked_for_again(scene_of: SceneOf) -> None:
    scene = scene_of()
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("step ")
        scene.server.stop("Ctrl-C")
        assert await serving == "Ctrl-C"
        assert await conversing == Leave("Ctrl-C", is_welcome_back=True, is_refusal=False)
    assert scene.trainer.replica.step > 0


@pytest.mark.parametrize(
    ("work", "is_complete"),
    [("append", False), ("apply", False), ("record", False), ("weights_messages", False), ("save_checkpoint", True)],
)
async def test_disk_that_fails_ends_the_server(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch, work: str, is_complete: bool
) -> None:
    scene = scene_of(steps=1)
    monkeypatch.setattr(scene.trainer, work, Mock(side_effect=StorageError("the disk is full")))
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        with pytest.raises(StorageError, match="the disk is full"):
            await serving
        leave = await conversing
        assert leave.is_welcome_back is not is_complete
    assert scene.trainer.replica.step == (work in ("record", "save_checkpoint"))  # nothing happens after the failure
    assert scene.local.is_stopped
    status = read_status(scene.run.folder.status, RunStatus)
    assert status is not None
    assert (status.state, status.reason) == ("ended", "the disk is full")


async def test_run_that_is_complete_ends_without_anybody(scene_of: SceneOf) -> None:
    scene = scene_of(step_num=5, steps=5)
    async with scene.serving() as serving:
        assert await serving == "all 5 steps are done"


def test_server_may_run_outside_the_main_thread(scene_of: SceneOf) -> None:
    """Where no handler of signals can be set."""
    scene = scene_of(step_num=5, steps=5)

    async def main() -> str:
        async with scene.serving() as serving:
            return await serving

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(asyncio.run, main()).result(LIMIT_S) == "all 5 steps are done"


async def test_work_waits_for_the_work_before_it(scene_of: SceneOf) -> None:
    scene = scene_of()
    second_began = threading.Event()
    done: list[str] = []
    async with scene.serving():
        await scene.said("listening")
        scene.server.work(lambda: second_began.wait(0.1), lambda overtaken: done.append(f"overtaken: {overtaken}"))
        scene.server.work(second_began.set, lambda _: done.append("second"))
        while len(done) < 2:
            await asyncio.sleep(0)
    assert done == ["overtaken: False", "second"]


async def test_volunteer_with_another_task_is_told_why_it_can_not_take_part(scene_of: SceneOf) -> None:
    scene = scene_of()
    scene.task = fit_task(start={"vector": [0.0] * 7})
    async with scene.serving():
        leave = await scene.converse(scene.volunteer("Ada"))
        assert leave.is_refusal
        assert "task: expected the server's tensors, got other ones" in leave.reason
        await scene.said("Ada left: task: expected the server's tensors, got other ones")


async def test_model_is_looked_at_beside_the_training(scene_of: SceneOf) -> None:
    scene = scene_of(sample_time=1e-6)
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("validation loss -")
        while not any(metrics.validation for metrics in read_last_metrics(scene.run.folder.metrics, 99)):
            await asyncio.sleep(0)
        scene.server.stop("Ctrl-C")
        await asyncio.gather(serving, conversing)
    assert "it writes" not in scene.screen.getvalue()
    status = read_status(scene.run.folder.status, RunStatus)
    assert status is not None
    assert (status.state, status.reason) == ("ended", "Ctrl-C")
    assert list(status.validation) == ["loss"]
    assert status.loss == read_last_metrics(scene.run.folder.metrics)[0].loss
    assert status.step == scene.trainer.replica.step


@final
class Looks(Callback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:  # noqa: ARG002
        self.steps.append(step)


async def test_model_is_looked_at_after_every_so_many_steps_but_for_those_that_a_look_takes(scene_of: SceneOf) -> None:
    scene, looks = scene_of(sample_every=3, steps=12), Looks()
    scene.callbacks.append(looks)
    async with scene.serving() as serving:
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await asyncio.gather(serving, conversing)
    assert looks.steps[0] == 3
    assert set(looks.steps) <= {3, 6, 9, 12}


async def test_what_goes_wrong_with_local_volunteers_is_said(scene_of: SceneOf) -> None:
    scene = scene_of()
    scene.local.unsaid = ["the local volunteer local-1 ended with exit code 7"]
    async with scene.serving():
        await scene.said("ended with exit code 7\n")
    assert scene.local.is_stopped


async def test_line_is_encrypted_where_the_settings_say_so(scene_of: SceneOf) -> None:
    scene = scene_of(steps=3, tls="on")
    async with scene.serving() as serving:
        leave = await scene.converse(scene.volunteer("Ada"))
        assert leave.reason == await serving == "all 3 steps are done"
    assert f"fit.py:task fedlearn://127.0.0.1:{scene.port}/1#" in scene.screen.getvalue()

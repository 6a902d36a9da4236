"""What a server tells, over real sockets."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedlearn.callback import Begun, Callback
from fedlearn.coordination.status import RunStatus
from fedlearn.es.layout import Float32Array
from fedlearn.server.listening import listen
from fedlearn.server.serving import serve
from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder
from tests.server.scene import Scene, SceneOf


class Listener(Callback):
    """Writes down what it hears, and what lies on the disk by then."""

    def __init__(self, folder: RunFolder) -> None:
        self.heard: list[str] = []
        self.begun: Begun | None = None
        self.examined: list[int] = []
        self._folder = folder

    def on_begin(self, begun: Begun) -> None:
        self.begun = begun
        self.heard.append("begin")

    def on_step(self, metrics: StepMetrics) -> None:
        assert read_last_metrics(self._folder.metrics) == [metrics]
        self.heard.append(f"step {metrics.step}")

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        assert list(figures) == ["loss"]
        assert sample == ""
        self.examined.append(step)

    def on_checkpoint(self, step: int, path: Path) -> None:
        assert path.exists()
        self.heard.append(f"checkpoint {step}")

    def on_join(self, name: str) -> None:
        self.heard.append(f"{name} joined")

    def on_leave(self, name: str, reason: str) -> None:
        self.heard.append(f"{name} left: {reason}")

    def on_status(self, status: RunStatus) -> None:
        if status.state == "ended":
            self.heard.append(f"ended: {status.reason}")

    def on_end(self, reason: str) -> None:
        self.heard.append(f"end: {reason}")


class Broken(Callback):
    def on_step(self, metrics: StepMetrics) -> None:
        raise RuntimeError(f"no step {metrics.step}")


def train(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serving() as serving:
            await scene.converse(scene.volunteer("Ada"))
            await serving

    asyncio.run(main())


def test_callbacks_are_told_of_a_run_from_its_beginning_to_its_end(scene_of: SceneOf) -> None:
    scene = scene_of(steps=2, sample_time=1e-9)
    listener = Listener(scene.run.folder)
    scene.callbacks = [listener]
    train(scene)
    end = "all 2 steps are done"
    expected = ["begin", "Ada joined", "step 0", "step 1", "checkpoint 2", f"ended: {end}", f"end: {end}"]
    assert listener.heard == expected
    assert listener.begun is not None
    assert (listener.begun.run, listener.begun.folder) == (scene.run.folder.path.name, scene.run.folder.path)
    assert (listener.begun.step, listener.begun.n_parameters) == (0, 6)
    assert listener.begun.settings["steps"] == 2


async def test_a_look_names_the_step_of_the_weights_that_it_was_at(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(sample_time=1e-9)
    listener, steps = Listener(scene.run.folder), []
    scene.callbacks, copy = [listener], scene.trainer.copy

    def copied() -> Float32Array:
        steps.append(scene.trainer.replica.step)
        return copy()

    monkeypatch.setattr(scene.trainer, "copy", copied)
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("validation loss")
        conversing.cancel()
    assert listener.examined[0] == steps[0] > 0


def test_a_server_of_the_command_line_tells_the_callbacks_that_it_was_given(
    scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gc.freeze", "gc.set_threshold"):  # what a server wants of its process is nothing for this one
        monkeypatch.setattr(name, lambda *_: None)
    scene = scene_of(step_num=5, steps=5)
    listener = Listener(scene.run.folder)
    with listen("127.0.0.1", 0) as listening:
        assert serve(scene.trainer, listening, scene.security, callbacks=[listener]) == 0
    assert (listener.heard[0], listener.heard[-1]) == ("begin", "end: all 5 steps are done")


async def test_a_volunteer_that_goes_is_told_with_its_reason(scene_of: SceneOf) -> None:
    scene = scene_of()
    listener = Listener(scene.run.folder)
    scene.callbacks = [listener]
    async with scene.serving():
        conversing = asyncio.create_task(scene.converse(scene.volunteer("Ada")))
        await scene.said("step ")
        conversing.cancel()
        await scene.said("Ada left: ")
    assert [line for line in listener.heard if line.startswith("Ada")][1].startswith("Ada left: ")
    assert listener.heard[-1] == "end: the server was stopped"


def test_a_callback_that_raises_ends_no_run_and_is_named_once(scene_of: SceneOf) -> None:
    scene = scene_of(steps=3)
    scene.callbacks = [Broken()]
    train(scene)
    assert [metrics.step for metrics in read_last_metrics(scene.run.folder.metrics, 9)] == [0, 1, 2]
    assert scene.screen.getvalue().count("Broken.on_step: RuntimeError: no step 0 (") == 1

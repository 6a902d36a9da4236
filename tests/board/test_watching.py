import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fedlearn.board import watching as module
from fedlearn.board.history import History
from fedlearn.board.watching import RunWatcher
from fedlearn.runs.run import Run
from tests.board.folders import made_anew, show_status, write_sample, write_steps
from tests.patience import LIMIT_S


def run_with(root: Path, scene: Callable[[RunWatcher], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plays a scene while the watch goes on, at a hundred looks a second; gives what the watch said."""
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)
    said: list[str] = []

    async def main() -> None:
        watch = RunWatcher(root)
        going = asyncio.create_task(watch.go_on(said.append))
        try:
            async with asyncio.timeout(LIMIT_S):
                await scene(watch)
        finally:
            going.cancel()

    asyncio.run(main())
    return said


def events_of(piece: bytes) -> list[tuple[str, Any]]:
    found = []
    for part in piece.decode().split("\n\n"):
        if part.startswith("event: "):
            name, _, data = part.removeprefix("event: ").partition("\ndata: ")
            found.append((name, json.loads(data)))
    return found


async def until(stream: Any, name: str) -> Any:  # noqa: ANN401 (of any event)
    async for piece in stream:
        for found, content in events_of(piece):
            if found == name:
                return content
    raise AssertionError(f"{name} never came")


def test_viewers_are_told_what_happens(root: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watch: RunWatcher) -> None:
        first, second = watch.stream(("1",)), watch.stream(("1",))
        assert await anext(first) == await anext(second) == b"retry: 2000\n\n"
        assert events_of(await anext(first)) == [("status", {"run": "1", "status": None})]
        write_steps(run.folder, range(3))
        write_sample(run.folder, 3, "text")
        for stream in (first, second):
            change = await until(stream, "change")
            assert change["run"] == "1"
        show_status(run)
        for stream in (first, second):
            told = await until(stream, "status")
            assert told["status"] is None or told["status"]["step"] == 12
        assert watch.n_viewers == 2
        await first.aclose()
        assert watch.n_viewers == 1

    assert run_with(root, scene, monkeypatch) == []


def test_new_run_is_told_to_everybody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watch: RunWatcher) -> None:
        stream = watch.stream(())
        await anext(stream)
        assert [found["name"] for found in await until(stream, "runs")] == ["1"]
        (root / "2").mkdir()
        (root / "2" / "config.json").write_text("{}")
        assert [found["name"] for found in await until(stream, "runs")] == ["2", "1"]

    run_with(root, scene, monkeypatch)


def test_viewer_that_does_not_read_is_let_go(root: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watch: RunWatcher) -> None:
        stream = watch.stream(("1",))
        await anext(stream)
        step = 0
        while watch.n_viewers:
            write_steps(run.folder, [step])
            step += 1
            await asyncio.sleep(0)
        told = [name for piece in [piece async for piece in stream] for name, _ in events_of(piece)]
        assert told == ["status", "described"]  # with which every stream begins

    run_with(root, scene, monkeypatch)


def test_silent_stream_is_kept_alive(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.01)

    async def scene(watch: RunWatcher) -> None:
        monkeypatch.setattr(watch, "_send", lambda *_: None)
        stream = watch.stream(())
        assert [await anext(stream) for _ in range(3)][1:] == [b": still here\n\n"] * 2

    run_with(root, scene, monkeypatch)


def test_run_that_can_not_be_shown_is_said_and_others_go_on(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("odd")

    async def scene(watch: RunWatcher) -> None:
        stream = watch.stream(("1",))
        await anext(stream)
        await anext(stream)
        monkeypatch.setattr(module, "status_of", fail)
        show_status(run)
        assert await until(stream, "runs")

    assert "run 1: ValueError: odd" in run_with(root, scene, monkeypatch)


def test_newest_run_that_can_not_be_read_ends_no_watch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ArithmeticError("odd")

    monkeypatch.setattr(History, "read", fail)

    async def scene(watch: RunWatcher) -> None:
        stream = watch.stream(("1",))
        assert await until(stream, "runs")

    assert "run 1: ArithmeticError: odd" in run_with(root, scene, monkeypatch)


def test_run_that_was_made_anew_shows_nothing_of_the_one_before(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(watch: RunWatcher) -> None:
        write_steps(run.folder, range(5))
        before = json.loads(await watch.everything(run.folder))
        (listed,) = watch.runs()
        made_anew(run)
        (other,) = watch.runs()
        assert other["born"] != listed["born"]
        after = json.loads(await watch.everything(run.folder))
        assert (before["curve"]["axes"]["step"], after["curve"]["axes"]["step"]) == ([0, 1, 2, 3, 4], [])
        assert after["epoch"] > before["epoch"]
        write_steps(run.folder, range(2))
        again = json.loads(await watch.everything(run.folder))
        assert (again["curve"]["axes"]["step"], again["version"]) == ([0, 1], before["version"] + 1)

    run_with(root, scene, monkeypatch)


def sigma_of(described: dict[str, Any]) -> str:
    (value,) = [each["value"] for each in described["settings"] if each["key"] == "sigma"]
    return str(value)


def test_settings_are_told_again_once_they_changed(root: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watch: RunWatcher) -> None:
        stream = watch.stream(("1",))
        await until(stream, "described")
        text = run.folder.config.read_text()
        run.folder.config.write_text("{")  # which says nothing, and ends nothing
        run.folder.config.write_text(text.replace('"sigma": 0.02', '"sigma": 0.5'))
        while sigma_of(await until(stream, "described")) != "0.5":
            pass
        late = watch.stream(("1",))  # whose page may have been made before
        assert sigma_of(await until(late, "described")) == "0.5"

    run_with(root, scene, monkeypatch)


def test_histories_that_nobody_looks_at_are_forgotten(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORIES", 2)
    for name in "234":
        (root / name).mkdir()
        (root / name / "config.json").write_text("{}")

    async def scene(watch: RunWatcher) -> None:
        for name in "1234":
            folder = watch.folder(name)
            assert folder is not None
            await watch.everything(folder)
        assert [*watch._histories] == ["3", "4"]

    run_with(root, scene, monkeypatch)

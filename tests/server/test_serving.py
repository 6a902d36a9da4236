"""What surrounds a server."""

import asyncio
import contextlib
import gc
import io
import socket
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedlearn.config import RunConfig
from fedlearn.coordination.status import RunStatus
from fedlearn.coordination.steps.divergence import DIVERGED, NO_LOSS
from fedlearn.server import serving as module
from fedlearn.server.security import ServerSecurity
from fedlearn.server.serving import conclude, serve, sweep
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.runs import resolve_run
from fedlearn.storage.status import read_status
from fedlearn.system.invocation import invocation
from fedlearn.system.waiting import WaitingProcess
from fedlearn.tasks.task import Setting
from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import Bars
from tests.board.folders import show_status
from tests.commands.recorded_run import recorded_run
from tests.patience import LIMIT_S
from tests.run_folders import created, fit_task, reopened, task_config


class Line:
    """As asyncio's own: it holds a method of itself."""

    def __init__(self) -> None:
        self.read = self.close

    def close(self) -> None: ...


async def test_cycles_that_grew_old_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.0)
    line = Line()
    gc.collect()  # which makes it an old one
    ended = weakref.ref(line)
    del line
    assert ended() is not None
    sweeping = asyncio.create_task(sweep())
    async with asyncio.timeout(LIMIT_S):
        while ended() is not None:
            await asyncio.sleep(0)
    sweeping.cancel()


@pytest.mark.parametrize("wait_s", [0.0, LIMIT_S])
async def test_boards_first_line_is_waited_for_but_not_for_long(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    may_say = asyncio.Event()

    async def show_board(_: Path, __: int, say: Callable[[str], None]) -> None:
        await may_say.wait()
        say("first")
        say("second")

    monkeypatch.setattr(module, "show_board", show_board)
    monkeypatch.setattr(module, "PAGE_S", wait_s)
    stream = io.StringIO()
    async with (
        asyncio.timeout(LIMIT_S),
        module._board(reopened(recorded_run(config), board=1), Terminal(stream=stream)) as page,
    ):
        if wait_s:
            may_say.set()
        first = await page
        may_say.set()
        while "second" not in stream.getvalue():
            await asyncio.sleep(0)
    assert (first, stream.getvalue()) == (("first", "second\n") if wait_s else ("", "first\nsecond\n"))


def concluded(
    config: RunConfig,
    reason: str,
    *,
    quiet: bool = False,
    usual: Mapping[str, Setting] | None = None,
    **changes: float | str,
) -> list[str]:
    """The last words about a run that stands at step 5."""
    trainer, _ = Trainer.open(reopened(recorded_run(config), **changes))
    stream = io.StringIO()
    with contextlib.closing(trainer):
        terminal, bars = Terminal(stream=stream, quiet=quiet), Bars(quiet=True)
        conclude(trainer, terminal, bars, reason=reason, next_commands=["eval", "plot"], usual=usual or {})
    return stream.getvalue().splitlines()


def test_a_complete_run_ends_with_a_last_look_and_what_to_try_next(config: RunConfig) -> None:
    first, look, *following = concluded(config, "all 5 steps are done", steps=5, sample_time=1.0)
    assert first.startswith(f"all 5 steps are done; step 5 is saved; go on with: {invocation('serve')} --resume ")
    assert first.endswith(" --steps 10")
    assert look.startswith("step     5  validation ")
    assert "; it writes: " in look
    assert following == ["try next: eval", "plot"]


def test_the_status_of_a_complete_run_is_of_its_last_look(config: RunConfig) -> None:
    trainer, _ = Trainer.open(reopened(recorded_run(config), steps=5, sample_time=1.0))
    folder = trainer.run.folder
    show_status(folder, state="ended", validation={"loss": 99.0}, sample="of an earlier step")
    with contextlib.closing(trainer):
        terminal = Terminal(stream=io.StringIO())
        conclude(trainer, terminal, Bars(quiet=True), reason="all 5 steps are done", next_commands=())
        look = trainer.examine(trainer.copy())
    status = read_status(folder.status, RunStatus)
    assert status is not None
    assert (status.state, status.validation) == ("ended", look.figures)
    assert status.sample not in ("", "of an earlier step")


def test_whoever_goes_on_is_shown_the_door_that_was_open(config: RunConfig) -> None:
    first, *_ = concluded(config, "the server was stopped", steps=6, sample_time=0.0)
    assert "--host" not in first
    first, *_ = concluded(config, "the server was stopped", steps=6, sample_time=0.0, host="::", token_file="my token")
    assert " --host :: " in first
    assert " --token-file 'my token'" in first


def test_whoever_goes_on_has_the_local_volunteers_that_there_were(config: RunConfig) -> None:
    first, *_ = concluded(config, "the server was stopped", steps=6, sample_time=0.0, volunteers=0, threads=3)
    assert " --volunteers 0" in first
    assert " --threads 3" in first
    first, *_ = concluded(config, "the server was stopped", steps=6, sample_time=0.0, volunteers=1, threads=0)
    assert "--volunteers" not in first
    assert "--threads" not in first


def test_whoever_goes_on_names_local_volunteers_that_the_task_does_not_bring(config: RunConfig) -> None:
    usual: dict[str, Any] = {"volunteers": 16, "threads": 1}
    local = dict(usual)
    first, *_ = concluded(config, "the server was stopped", usual=usual, steps=6, sample_time=0.0, **local)
    assert "--volunteers" not in first
    local["volunteers"] = 1
    first, *_ = concluded(config, "the server was stopped", usual=usual, steps=6, sample_time=0.0, **local)
    assert " --volunteers 1" in first
    assert "--threads" not in first


def test_no_command_goes_on_with_a_task_that_is_a_value_of_a_script(tmp_path: Path) -> None:
    run, stream = created(task_config(tmp_path, task="function", steps=6), fit_task()), io.StringIO()
    trainer, _ = Trainer.open(run)
    with contextlib.closing(trainer):
        terminal = Terminal(stream=stream, quiet=True)
        conclude(trainer, terminal, Bars(quiet=True), reason="its boss ended it", next_commands=())
    assert stream.getvalue() == f"its boss ended it; step {run.origin.step} is saved in {run.folder.path}\n"


def test_who_stops_a_server_does_not_wait_for_a_last_look(config: RunConfig) -> None:
    first, *following = concluded(config, "the server was stopped", steps=6, sample_time=1.0)
    assert first.startswith("the server was stopped; step 5 is saved; go on with: ")
    assert following == ["try next: eval", "plot"]


def test_who_wants_no_looks_is_shown_none_at_the_end(config: RunConfig) -> None:
    assert len(concluded(config, "all 5 steps are done", steps=5, sample_time=0.0)) == 3


def test_who_wants_looks_by_steps_is_shown_the_last_one(config: RunConfig) -> None:
    assert len(concluded(config, "all 5 steps are done", steps=5, sample_time=0.0, sample_every=7)) == 4


def test_nobody_should_go_on_from_where_a_run_diverged(config: RunConfig) -> None:
    (line,) = concluded(config, f"{DIVERGED}: far away")
    back = f"go back to its best step with: {invocation('rollback')} "
    assert line.startswith(f"{DIVERGED}: far away; step 5 is saved; {back}")
    folder = resolve_run(Path(config.run.runs), "1")
    best = min(read_lines(folder.metrics, StepMetrics), key=lambda metrics: metrics.loss or 0.0)
    assert line.endswith(f"/1 {best.step}")


@pytest.mark.parametrize(
    ("reason", "code"),
    [("all 5 steps are done", 0), ("the server was stopped", 0), (f"{DIVERGED}: far", 2), (f"{NO_LOSS} in 3", 2)],
)
def test_run_that_ends_with_weights_of_no_use_fails(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, reason: str, code: int
) -> None:
    class Ending:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self, *_: object) -> str:
            return reason

    monkeypatch.setattr(module, "Server", Ending)
    trainer, _ = Trainer.open(recorded_run(config))
    with contextlib.closing(trainer), socket.socket() as listening:
        assert serve(trainer, listening, ServerSecurity(), terminal=Terminal(stream=io.StringIO(), quiet=True)) == code


def test_volunteer_that_was_started_ahead_is_one_of_the_runs_own(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    class Beginning:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self, _: object, local: Callable[[int], object]) -> str:
            local(4711)
            return "the server was stopped"

    monkeypatch.setattr(module, "Server", Beginning)
    monkeypatch.setattr(module, "LocalVolunteers", lambda *_, ahead, **__: given.append(ahead))
    ahead = WaitingProcess.start(command=["cat"])
    trainer, _ = Trainer.open(recorded_run(config))
    with contextlib.closing(trainer), contextlib.closing(ahead), socket.socket() as listening:
        terminal = Terminal(stream=io.StringIO(), quiet=True)
        serve(trainer, listening, ServerSecurity(), terminal=terminal, ahead=ahead)
    ahead.process.wait()
    assert given == [ahead]


def test_quiet_says_how_it_ended_and_nothing_more(config: RunConfig) -> None:
    (line,) = concluded(config, "all 5 steps are done", quiet=True, steps=5, sample_time=1.0)
    assert line.startswith("all 5 steps are done; step 5 is saved")

import argparse
import getpass
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fedlearn.commands.manage import orders as module
from fedlearn.commands.manage.orders import (
    add_set,
    checkpoint_command,
    finish_command,
    go_on_command,
    pause_command,
    send_away_command,
    set_command,
    stop_command,
)
from fedlearn.coordination.status import RunStatus
from fedlearn.server.training.changing import AT_WORK
from fedlearn.storage.durable import StorageError
from fedlearn.storage.orders import (
    Answer,
    Finish,
    GoOn,
    Order,
    Pause,
    SendAway,
    Set,
    Stop,
    WriteCheckpoint,
    reply,
    take,
)
from fedlearn.storage.runs import RunFolder, create_run
from fedlearn.storage.status import write_status
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, fit_task, rnn_config, task_config

STATUS = RunStatus(
    run="1", state="running", step=5, steps=0, run_left_s=None, members_per_s=0.0, open_step=None, volunteers=()
)
Command = Callable[[argparse.Namespace], int]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Of a run that a server, which this process stands in for, has just now."""
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    folder = create_run(tmp_path)
    folder.config.write_text("{}")
    folder.orders.mkdir()
    show(folder)
    return folder


def show(folder: RunFolder, **changes: object) -> None:
    status = msgspec.structs.replace(STATUS, **{"pid": os.getpid(), "time": time.time(), **changes})
    write_status(folder.status, status)


def options_of(folder: RunFolder, **options: object) -> argparse.Namespace:
    return argparse.Namespace(run="latest", runs=str(folder.path.parent), **options)


@contextmanager
def answering(folder: RunFolder, answer: Callable[[], Answer | None]) -> Iterator[list[Order]]:
    """A server that takes orders and answers each."""
    taken: list[Order] = []
    ended = threading.Event()

    def serve() -> None:
        while not ended.wait(0.01):
            for slip, order in take(folder.orders)[0]:
                taken.append(order)
                if (said := answer()) is not None:
                    reply(slip, said)

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield taken
    finally:
        ended.set()
        server.join()


@pytest.mark.parametrize(
    ("command", "given", "order"),
    [
        (pause_command, {}, Pause("ada")),
        (go_on_command, {}, GoOn("ada")),
        (checkpoint_command, {}, WriteCheckpoint("ada")),
        (send_away_command, {"who": "bob"}, SendAway("ada", "bob")),
        (set_command, {"key": "sigma", "value": "0.1"}, Set("ada", "sigma", "0.1")),
    ],
)
def test_order_is_given_and_its_answer_printed(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], command: Command, given: dict[str, str], order: Order
) -> None:
    with answering(folder, lambda: Answer(True, "done\x1b")) as taken:
        assert command(options_of(folder, **given)) == 0
    assert taken == [order]
    assert capsys.readouterr().out == "run 1: done\\x1b\n"
    assert list(folder.orders.iterdir()) == []


def test_refusal_is_an_error(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(folder, lambda: Answer(False, "no")):
        assert pause_command(options_of(folder)) == 1
    assert capsys.readouterr().err == "run 1: no\n"


@pytest.mark.parametrize("task", [None, fit_task()])
def test_without_a_server_nothing_is_given_and_what_starts_one_is_said(tmp_path: Path, task: NamedTask | None) -> None:
    run = created(task_config(tmp_path) if task else rnn_config(tmp_path), task)
    flags = f"--resume {run.folder.path}{' --task fit.py:task' if task else ''}"
    with pytest.raises(StorageError, match=rf"1: expected a server that runs it, got none; go on with: .* {flags}$"):
        pause_command(options_of(run.folder))
    assert not run.folder.orders.exists()


def test_server_that_ends_before_it_answers_is_told(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def end() -> None:
        show(folder, state="ended")

    with answering(folder, end):
        assert pause_command(options_of(folder)) == 1
    assert capsys.readouterr().err == "run 1: the server ended before it answered\n"


def test_last_words_of_a_server_are_heard(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def answers_and_ends(_: RunFolder) -> RunStatus | None:
        looks.append(None)
        for slip, _order in take(folder.orders)[0]:
            reply(slip, Answer(True, "done"))
        return STATUS if len(looks) == 1 else None

    monkeypatch.setattr(module, "live_status", answers_and_ends)
    assert pause_command(options_of(folder)) == 0
    assert capsys.readouterr().out == "run 1: done\n"


def test_order_that_nobody_takes_is_taken_back(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAKEN_WITHIN_S", 0.1)
    assert pause_command(options_of(folder)) == 1
    assert "the server did not take the order within 0.1 s" in capsys.readouterr().err
    assert list(folder.orders.iterdir()) == []


def test_long_wait_is_explained(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    later = time.monotonic() + 0.5

    def wait() -> Answer:
        while time.monotonic() < later:
            pass
        return Answer(True, "done")

    with answering(folder, wait):
        assert pause_command(options_of(folder)) == 0
    assert capsys.readouterr().err.count("waiting for the open step to end") == 1


def test_stop_returns_once_the_server_has_ended(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def end() -> Answer:
        show(folder, state="ended", reason="ada stopped the server", step=9)
        return Answer(True, "the server stops")

    with answering(folder, end) as taken:
        assert stop_command(options_of(folder)) == 0
    assert taken == [Stop("ada")]
    assert capsys.readouterr().out == "run 1: ada stopped the server, at step 9\n"


def test_finish_returns_once_the_last_step_and_the_server_have_ended(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_WITHIN_S", 0.0)
    looks: list[object] = []

    def ends_later(_: RunFolder) -> RunStatus | None:
        looks.append(None)
        for slip, _order in take(folder.orders)[0]:
            reply(slip, Answer(True, "it ends at step 9"))
        return STATUS if len(looks) < 6 else None

    monkeypatch.setattr(module, "live_status", ends_later)
    show(folder, state="ended", reason="all 9 steps are done", step=9)
    assert finish_command(options_of(folder, steps=None)) == 0
    assert len(looks) == 6
    shown = capsys.readouterr()
    assert shown.err == "it ends at step 9; Ctrl-C ends the wait, not the order\n"
    assert shown.out == "run 1: all 9 steps are done, at step 9\n"


def test_server_that_finishes_before_it_answers_has_finished(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    def end() -> None:
        show(folder, state="ended", reason="all 9 steps are done", step=9)

    with answering(folder, end):
        assert finish_command(options_of(folder, steps=None)) == 0
    assert capsys.readouterr().out == "run 1: all 9 steps are done, at step 9\n"


def test_server_that_ends_before_it_takes_the_order_has_not_finished(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def is_gone_at_the_second_look(_: RunFolder) -> RunStatus | None:
        looks.append(None)
        return STATUS if len(looks) == 1 else None

    monkeypatch.setattr(module, "live_status", is_gone_at_the_second_look)
    assert finish_command(options_of(folder, steps=None)) == 1
    assert capsys.readouterr().err == "run 1: the server ended before it answered\n"


def test_refused_finish_does_not_wait_for_an_end(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(folder, lambda: Answer(False, "no")) as taken:
        assert finish_command(options_of(folder, steps=None)) == 1
    assert taken == [Finish("ada")]
    assert capsys.readouterr().err == "run 1: no\n"


def test_finish_may_say_in_how_many_steps_the_rate_falls(folder: RunFolder) -> None:
    with answering(folder, lambda: Answer(False, "no")) as taken:
        assert finish_command(options_of(folder, steps=7)) == 1
    assert taken == [Finish("ada", 7)]


def test_server_that_does_not_end_is_told(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_WITHIN_S", 0.1)
    assert stop_command(options_of(folder)) == 1
    assert "the server did not end within 0.1 s" in capsys.readouterr().err


def test_user_without_a_name_is_the_operator(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise KeyError("uid")

    monkeypatch.setattr(getpass, "getuser", fail)
    with answering(folder, lambda: Answer(True, "done")) as taken:
        pause_command(options_of(folder))
    assert taken == [Pause("the operator")]
    assert capsys.readouterr().err == ""


def test_settings_that_can_be_set_are_listed() -> None:
    parser = argparse.ArgumentParser()
    add_set(parser)
    assert set(re.findall(r"[a-z_0-9]+", parser.format_help())) >= AT_WORK

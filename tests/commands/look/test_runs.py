import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.commands.look import runs
from fedlearn.commands.look.runs import runs_command
from fedlearn.config import RunConfig
from fedlearn.coordination.people.credit import Earned, Entry
from fedlearn.coordination.status import RunStatus
from fedlearn.runs.run import KIND_FILE, Run
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.samples import Sample
from fedlearn.storage.status import write_status
from fedlearn.system.invocation import invocation
from tests.run_folders import created


def listing(run: Run, capsys: pytest.CaptureFixture[str]) -> str:
    assert runs_command(argparse.Namespace(runs=run.config.run.runs, credit=None, json=False)) == 0
    return capsys.readouterr().out


def test_a_run_is_a_line_with_steps_loss_and_settings(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    header, line = listing(run, capsys).splitlines()
    assert header.split()[:3] == ["run", "state", "steps"]
    assert re.match(
        r" +1 +stopped +5 +\d\.\d+ bits/character +- +\d+ s  rnn, .*population 64, adam 0.02, sigma 0.02", line
    )


@pytest.mark.parametrize(("columns", "is_below"), [(80, True), (400, False)])
def test_a_terminal_that_is_too_narrow_has_the_configuration_below(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, is_below: bool
) -> None:
    monkeypatch.setattr(runs, "columns_of", lambda _: columns)
    lines = listing(run, capsys).splitlines()
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)
    assert ("      configuration" in lines) == is_below
    assert len(lines) == 2 or is_below


def test_a_run_that_cannot_be_read_does_not_hide_the_others(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.config.write_text("{")
    assert "unreadable: " in listing(run, capsys)


def test_folder_without_runs_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runs_command(argparse.Namespace(runs=str(tmp_path / "none"), credit=None, json=False)) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'none'}; start one with: {invocation('serve')}\n"


STATUS = RunStatus(
    run="1", state="running", step=5, steps=0, run_left_s=None, members_per_s=0.0, open_step=None, volunteers=()
)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "running"),
        ({"state": "waiting"}, "waiting"),
        ({"state": "ended"}, "stopped"),
        ({"age_s": 60.0}, "stopped"),
        ({"age_s": -3600.0}, "stopped"),
        ({"pid": 2**31 - 1}, "stopped"),
        ({"pid": 0}, "stopped"),
    ],
)
def test_run_that_a_server_has_is_shown_as_such(
    changes: dict[str, Any], shown: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {"pid": os.getpid(), "time": time.time() - changes.pop("age_s", 0.0), **changes}
    write_status(run.folder.status, msgspec.structs.replace(STATUS, **written))
    _, line = listing(run, capsys).splitlines()
    assert line.split()[:3] == ["1", shown, "5"]


def test_status_that_can_not_be_read_hides_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.status.write_text('{"format": 2, "state": "\\u001b[2J"}')
    _, line = listing(run, capsys).splitlines()
    assert line.split()[:3] == ["1", "stopped", "5"]


def look(run: Run, *, step: int, accuracy: float) -> None:
    """The model was looked at."""
    sample = Sample(step=step, time=0.0, figures={"accuracy": accuracy, "f1": None}, text="")
    with open(run.folder.samples, "ab") as file:
        file.write(msgspec.json.encode(sample) + b"\n")


def test_last_figures_on_held_out_data_are_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    look(run, step=2, accuracy=0.25)
    look(run, step=5, accuracy=0.75)
    assert " accuracy 0.75 " in listing(run, capsys)


def test_run_whose_kind_is_unknown_does_not_hide_the_others(
    config: RunConfig, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    created(config)
    (run.folder.data / KIND_FILE).unlink()
    _, first, second = listing(run, capsys).splitlines()
    assert "unreadable: " in first
    assert second.split()[:3] == ["2", "stopped", "0"]


def test_foreign_texts_send_nothing_to_the_terminal(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = run.folder.config.read_text()
    altered = re.sub(r'"data": \[[^]]*\]', r'"data": "\\u001b[2J\\u001b]0;owned\\u0007\\u202e"', text)
    assert altered != text
    run.folder.config.write_text(altered)
    shown = listing(run, capsys)
    assert "data \\x1b[2J\\x1b]0;owned\\x07\\u202e" in shown
    run.folder.config.write_text('{"\\u001b[2J": 1}')
    shown += listing(run, capsys)
    assert "unreadable: \\x1b[2J: expected a known key" in shown
    lines = run.folder.metrics.read_text().replace("bits_per_character", "\\u001b[31m")
    run.folder.config.write_text(text)
    run.folder.metrics.write_text(lines)
    shown += listing(run, capsys)
    assert " \\x1b[31m " in shown
    assert set(shown) - {"\n"} == {character for character in shown if character.isprintable()}


def test_configuration_that_is_no_text_does_not_hide_the_others(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.config.write_bytes(b"\xff\xfe")
    assert "unreadable: " in listing(run, capsys)


def test_programs_are_told_all_as_json(config: RunConfig, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    created(config).folder.config.write_text("{")
    look(run, step=5, accuracy=0.75)
    write_status(run.folder.status, msgspec.structs.replace(STATUS, pid=os.getpid(), time=time.time(), state="paused"))
    assert runs_command(argparse.Namespace(runs=run.config.run.runs, credit=None, json=True)) == 0
    first, second = json.loads(capsys.readouterr().out)
    size = sum(path.stat().st_size for path in run.folder.path.rglob("*") if path.is_file())
    assert (first["run"], first["folder"], first["size_bytes"]) == ("1", str(run.folder.path), size)
    assert (first["state"], first["is_live"], first["step"], first["loss"]) == ("paused", True, 5, 1.0)
    assert (first["validation"], list(first["shown"])) == ({"accuracy": 0.75}, ["bits_per_character"])
    settings = first["settings"]
    assert (settings["perturb"], settings["head"], settings["precision"]) == ("weights", "perturbed", "float32")
    assert (settings["hidden_size"], settings["learning_rate"]) == (8, 0.02)
    assert set(second) == {"run", "folder", "size_bytes", "problem"}


def test_run_that_nobody_has_is_not_live(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    runs_command(argparse.Namespace(runs=run.config.run.runs, credit=None, json=True))
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["state"], listed["is_live"]) == (None, False)


def credit_of(run: Run, *entries: Entry) -> int:
    log = LineLog(run.folder.credit)
    for entry in entries:
        log.append(entry)
    log.close()
    return runs_command(argparse.Namespace(runs=run.config.run.runs, credit="1", json=False))


def test_credit_of_a_run_is_a_line_for_each_identity(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    anna = Earned(name="anna\x1b[2J", members=40, work=400, seconds=7200.0, agreed=3)
    code = credit_of(run, Entry(1, 3, {"ab" * 32: anna, "cd" * 32: Earned(name="bert", members=8, caught=1)}))
    header, first, second, unclaimed = capsys.readouterr().out.splitlines()
    assert code == 0
    assert header.split() == ["identity", "name", "members", "work", "hours", "checked", "false"]
    assert first.split() == ["abababababababab", "anna\\x1b[2J", "40", "400", "2.00", "3", "0"]
    assert second.split() == ["cdcdcdcdcdcdcdcd", "bert", "8", "0", "0.00", "0", "1"]
    assert unclaimed.startswith("16 members of the journal are credited to nobody")


def test_credit_for_more_than_was_done_is_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert credit_of(run, Entry(1, 3, {"ab": Earned(members=49)})) == 1
    assert "steps 1 to 3: credit was given for other members than the journal has" in capsys.readouterr().out

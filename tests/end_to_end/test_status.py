"""What a viewer sees of a run that goes on, through its folder alone."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.end_to_end.processes import fedlearn, metrics_of, output_of, wait_for
from tests.faults.callers import serving
from tests.faults.measures import until_more
from tests.patience import LIMIT_S


def until(folder: Path, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first status that is as wanted."""
    path, end = folder / "trainingRuns/1/status.json", time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if path.exists():
            status: dict[str, Any] = json.loads(path.read_text())  # never a part of one
            if is_so(status):
                return status
        time.sleep(0.01)
    raise AssertionError(f"it never came to that: {path.read_text()}")


def test_run_that_goes_on_is_seen_with_its_volunteer(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "1") as (server, line):
        seen = until(tmp_path, lambda status: status["state"] == "running" and status["members_per_s"] > 0)
        later = until(tmp_path, lambda status: status["step"] > seen["step"] and status["bytes_in_per_s"] > 0)
        (volunteer,) = later["volunteers"]
        assert (seen["format"], seen["run"], seen["pid"]) == (1, "1", server.pid)
        assert volunteer["is_local"]
        assert (volunteer["phase"], volunteer["digest"], volunteer["trust"]) == ("ready", "equal", "proven")
        assert later["open_step"]["wanted"] == 64
        assert abs(time.time() - later["time"]) < LIMIT_S
        text = json.dumps(later)
        assert "127.0.0.1" not in text
        assert line.rpartition(":")[2] not in text.split('"volunteers"')[1]
        assert fedlearn("runs", folder=tmp_path).splitlines()[1].split()[:2] == ["1", "running"]
        credited = until(tmp_path, lambda status: status["volunteers"][0]["credit"]["members"] > 0)
        server.send_signal(signal.SIGTERM)
        ended = until(tmp_path, lambda status: status["state"] == "ended")
    assert ended["reason"] == "the server was stopped"
    print(f"{later['members_per_s']:.0f} members/s, {credited['volunteers'][0]['credit']['members']} credited")
    assert fedlearn("runs", folder=tmp_path).splitlines()[1].split()[:2] == ["1", "stopped"]
    assert fedlearn("check", "latest", folder=tmp_path)


def test_server_that_is_killed_is_not_taken_for_a_living_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "0") as (server, _):
        assert until(tmp_path, lambda _: True)["state"] == "waiting"
        server.kill()
        server.wait()
        assert until(tmp_path, lambda _: True)["state"] == "waiting"
        assert fedlearn("runs", folder=tmp_path).splitlines()[1].split()[:2] == ["1", "stopped"]


def put_a_folder_in_its_place(status: Path) -> None:
    while not status.is_dir():  # the server may replace the file in between
        with suppress(FileNotFoundError):
            status.unlink()
        with suppress(FileExistsError):
            status.mkdir()


def test_run_goes_on_while_its_status_can_not_be_written(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "1") as (server, _):
        until(tmp_path, lambda status: status["state"] == "running")
        put_a_folder_in_its_place(tmp_path / "trainingRuns/1/status.json")
        wait_for(server, r"status\.json: could not be written: Is a directory")
        before = metrics_of(tmp_path)[-1]
        while metrics_of(tmp_path)[-1]["time"] < before["time"] + 2.5:
            until_more(tmp_path, 1)
        (tmp_path / "trainingRuns/1/status.json").rmdir()
        assert until(tmp_path, lambda _: True)["step"] > before["step"]
        server.terminate()
        assert "status.json: could not be written" not in output_of(server).read()

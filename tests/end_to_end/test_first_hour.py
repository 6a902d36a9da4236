"""docs/first-hour.md, replayed: its commands in its order, on a network small enough to learn in moments."""

import json
import re
import shlex
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.docs.pages import commands
from tests.end_to_end.processes import (
    ROOT,
    ended_at_exit,
    free_port,
    metrics_of,
    output_of,
    run,
    start,
    wait_for,
)
from tests.patience import LIMIT_S
from tests.run_folders import write_text

pytest.importorskip("starlette", reason="the board is an extra")
pytest.importorskip("uvicorn", reason="the board is an extra")
pytest.importorskip("matplotlib", reason="plots are an extra")

STEPS = [
    arguments for command in commands() if command.page == "first-hour.md" and (arguments := command.own_arguments)
]
SERVE = [arguments[1:] for arguments in STEPS if arguments[0] == "serve"]
LOOK = [arguments for arguments in STEPS if arguments[0] != "serve"]
SMALL = {
    "HIDDEN_SIZE": "8",
    "POPULATION_LIMIT": "64",
    "GROUP_SIZE": "8",
    "SIGMA": "0.02",
    "LEARNING_RATE": "0.02",
    "TIME_PER_STEP": "5",
    "SAMPLE_TIME": "1",
    "THREADS": "1",
    "PORT": "0",
}


def serving(folder: Path, arguments: list[str], board: int) -> "subprocess.Popen[str]":
    settings = {**SMALL, "DATA": str(folder / "corpus.txt"), "BOARD": str(board)}
    environ = {f"FEDLEARN_{key}": value for key, value in settings.items()}
    return start("server.py", *arguments, folder=folder, limit_s=LIMIT_S, **environ)


def stopped(server: "subprocess.Popen[str]") -> None:
    server.send_signal(signal.SIGINT)
    output_of(server).read()
    assert server.wait(timeout=LIMIT_S) == 0


def written(address: str, prompt: str) -> str:
    """What the model writes behind a prompt, as the page asks for it."""
    body = json.dumps({"prompt": prompt, "length": 20}).encode()
    asked = urllib.request.Request(f"{address}/api/runs/1/write", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
        pieces = [json.loads(line) for line in answer.read().splitlines()]
    assert not any(piece.get("error") for piece in pieces), pieces
    text = ""
    for piece in pieces:
        text = text[: piece.get("keep", 0)] + piece.get("add", "")
    return text


def test_newcomers_hour_goes_as_the_page_says(tmp_path: Path) -> None:
    write_text(tmp_path / "corpus.txt", 8000)
    first, second, third = SERVE
    board = free_port()

    server = serving(tmp_path, first, board)
    with ended_at_exit(server):
        address, read = wait_for(server, r"in a browser: (http://127\.0\.0\.1:\d+)")
        # On a slow machine it says how long it measures, a step may come first, and the board has a line of its own.
        said = [line.split()[0] for line in read.splitlines() if not re.search(r"^step |: \d+ s$", line)]
        assert said in (["run", "perturb", "listening"], ["run", "perturb", "listening", "see,"])
        if not any(line.startswith("step ") for line in read.splitlines()):
            wait_for(server, r"^step +0")
        with urllib.request.urlopen(address, timeout=LIMIT_S) as page:
            assert b"<html" in page.read()
        assert written(address, "the ")
        stopped(server)

    server = serving(tmp_path, second, board)
    with ended_at_exit(server):
        join, _ = wait_for(server, r"join with: (fedlearn join fedlearn://\S+)")
        volunteer = start(
            "client.py",
            *shlex.split(join)[2:],
            "--name",
            "second",
            folder=tmp_path,
            XDG_CONFIG_HOME=str(tmp_path / "second machine"),
        )
        with ended_at_exit(volunteer):
            wait_for(server, "second joined")
            server.kill()
            server.wait()
    n_before = len(metrics_of(tmp_path))

    server = serving(tmp_path, third, board)
    with ended_at_exit(server):
        wait_for(server, r"^step +\d+")
        stopped(server)
    assert len(metrics_of(tmp_path)) > n_before

    for arguments in LOOK:
        done = run("-m", "fedlearn", *arguments, folder=tmp_path, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout, arguments
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")
    assert load_file(tmp_path / "weights.safetensors")

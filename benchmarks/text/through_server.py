"""A run through real processes: `server.py` with its local volunteer, for a time, and its last checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import es_core
from benchmarks.text.learner import Look, SeedRun, conclude
from benchmarks.text.rnn_run import find_run
from fedlearn.config import RunConfig, to_json
from fedlearn.storage.checkpoint import latest_checkpoint
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.tasks.rnn.examiner import BITS

SERVER = Path(__file__).parents[2] / "server.py"

LEAVE_S = 60.0
"""Seconds for the server and its volunteer to save and go."""


def learn_through_server(config: RunConfig, seconds: float) -> SeedRun:
    """Starts a server in the empty folder `config.run.runs`, stops it after this time, start-up included.

    The looks are the server's own, with the seconds since it was started.

    Raises:
        RuntimeError: the server fails.
    """
    file = Path(config.run.runs) / "benchmark.json"
    file.write_text(to_json(config))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FEDLEARN_")}
    environment |= {"FEDLEARN_ISA": es_core.current_isa(), "FEDLEARN_BOARD": "0"}
    began = time.time()
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(file)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = _stop_after(server, seconds)
    finally:
        server.kill()
        server.wait()
    if server.returncode != 0:
        raise RuntimeError(f"server.py: expected exit code 0, got {server.returncode}: {said.strip()}")
    run = find_run(config.run.runs)
    folder = run.run.folder
    snapshot = latest_checkpoint(folder)[0].snapshot
    looks, trial_tokens = [], 0
    metrics = read_last_metrics(folder.metrics, snapshot.step)
    for line in metrics:
        trial_tokens += line.members * run.objective.work_per_member
        if BITS in line.validation:
            looks.append(Look(line.time - began, line.step + 1, trial_tokens, line.validation[BITS]))
    last_s = metrics[-1].time - began if metrics else 0.0
    bits = run.bits_per_character(snapshot.weights, run.dataset.validation)
    looks.append(Look(last_s, snapshot.step, trial_tokens, bits))
    return conclude(run, snapshot.weights, looks)


def _stop_after(server: "subprocess.Popen[str]", seconds: float) -> str:
    """Interrupts the server unless it ends by itself; gives what it said to standard error."""
    try:
        return server.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGINT)
        return server.communicate(timeout=LEAVE_S)[1]

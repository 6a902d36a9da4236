"""Steps of real processes on loopback: a server and one volunteer, which times what it computes."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import msgspec
from measure import Spread, spread
from timed_volunteer import StepSeconds

import es_core
from fedlearn.config import RunConfig, to_json
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.storage.runs import resolve_run

WARM_UP_STEPS = 10
"""Steps that are not counted: the volunteer's first slices are short."""

START_S = 30.0
"""For the processes to start and to go, beyond the time of the steps."""


class WholeSteps(msgspec.Struct, frozen=True):
    """What a step took, in the volunteer's own measure where it computed."""

    steps: int
    period_ms: Spread
    evaluation_ms: Spread
    estimate_ms: Spread
    everything_else_ms: Spread
    """Each period without its evaluation and gradient estimate."""


def measure_whole_steps(config: RunConfig, steps: int) -> WholeSteps:
    """Runs `fedlearn serve` and a volunteer of one thread for this many steps; both may use all processors.

    Raises:
        RuntimeError: one of them fails.
    """
    with tempfile.TemporaryDirectory(dir=config.run.runs) as folder:
        config = config.replace(
            {
                "runs": folder,
                "steps": WARM_UP_STEPS + steps,
                "volunteers": 0,
                "port": _free_port(),
                "sample_time": 0.0,
            }
        )
        computed = _run(config, Path(folder))
        times = [line.time for line in read_last_metrics(resolve_run(Path(folder), "latest").metrics, steps + 1)]
    periods = [(later - earlier) * 1e3 for earlier, later in pairwise(times)]
    evaluations = [step.evaluation * 1e3 for step in computed[-steps:]]
    estimates = [step.estimate * 1e3 for step in computed[-steps:]]
    rest = [
        period - evaluation - estimate
        for period, evaluation, estimate in zip(periods, evaluations, estimates, strict=True)
    ]
    return WholeSteps(
        steps=steps,
        period_ms=spread(periods),
        evaluation_ms=spread(evaluations),
        estimate_ms=spread(estimates),
        everything_else_ms=spread(rest),
    )


def _run(config: RunConfig, folder: Path) -> list[StepSeconds]:
    """Runs both processes to the end; gives what the volunteer's steps took."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FEDLEARN_")}
    environment |= {"FEDLEARN_ISA": es_core.current_isa(), "FEDLEARN_BOARD": "0"}
    file, result = folder / "config.json", folder / "volunteer.json"
    file.write_text(to_json(config))
    serve = [sys.executable, "-m", "fedlearn", "serve", str(file)]
    join = [sys.executable, str(Path(__file__).with_name("timed_volunteer.py")), str(result)]
    join += ["--server", f"127.0.0.1:{config.server.port}", "--threads", "1"]
    started = time.monotonic()
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for command in (serve, join)]
    try:
        while all(process.poll() is None for process in processes):
            if time.monotonic() - started > START_S + config.run.steps * config.strategy.time_per_step:
                raise RuntimeError("whole steps: expected an end by now; is this machine too busy?")
            time.sleep(0.05)
        has_failed = any(process.returncode for process in processes)
        if has_failed or any(process.wait(START_S) for process in processes):
            raise RuntimeError("whole steps: expected exit codes of 0 from server and volunteer")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return msgspec.json.decode(result.read_bytes(), type=list[StepSeconds])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

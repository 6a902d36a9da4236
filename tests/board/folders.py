"""Run folders for the board, as servers leave them."""

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from fedlearn.coordination.status import Earnings, RunStatus, StepStatus, VolunteerStatus
from fedlearn.runs.run import Run
from fedlearn.storage import orders
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.logs.samples import Sample
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import write_status
from tests.patience import LIMIT_S

IDENTITY = "0123456789abcdef"


def metrics_of(step: int, **changes: Any) -> StepMetrics:  # noqa: ANN401 (values of any figure)
    return StepMetrics(
        **{
            "step": step,
            "loss": 4.0 - step / 1000,
            "shown": {"bits_per_character": 5.0 - step / 1000},
            "members": 64,
            "work_per_s": 1000.0 + step,
            "volunteers": 1 + step % 3,
            "bytes_in": 100,
            "bytes_out": 10,
            "digest": "00",
            "time": 1.7e9 + step,
            "work": 512,
            "elapsed_s": 0.5 * (step + 1),
            **changes,
        }
    )


def append(path: Path, lines: Iterable[msgspec.Struct]) -> None:
    log = LineLog(path)
    for line in lines:
        log.append(line)
    log.close()


def write_steps(folder: RunFolder, steps: Iterable[int], **changes: Any) -> None:  # noqa: ANN401
    append(folder.metrics, (metrics_of(step, **changes) for step in steps))


def write_sample(folder: RunFolder, step: int, text: str) -> None:
    append(folder.samples, [Sample(step=step, time=1.7e9, figures={"bits_per_character": 3.0}, text=text)])


def volunteer(name: str = "ada", **changes: Any) -> VolunteerStatus:  # noqa: ANN401
    return msgspec.structs.replace(
        VolunteerStatus(
            name=name,
            identity=IDENTITY,
            threads=2,
            is_local=False,
            phase="ready",
            members_per_s=120.0,
            share=0.5,
            members=8,
            exchange_s=0.02,
            trust="proven",
            caught=0,
            digest="equal",
            credit=Earnings(640, 5120, 60, 3, 0),
        ),
        **changes,
    )


def status_of(run: str = "1", **changes: Any) -> RunStatus:  # noqa: ANN401
    status = RunStatus(
        run=run,
        state="running",
        step=12,
        steps=100,
        run_left_s=60.0,
        members_per_s=120.0,
        open_step=StepStatus(1.0, 8, 64),
        volunteers=(volunteer(),),
        pid=os.getpid(),
        time=time.time() + 9,  # for as long as a test may take
        unit="tokens",
        loss=2.5,
        shown={"bits_per_character": 3.6},
        work_per_s=960.0,
        bytes_in_per_s=10.0,
        bytes_out_per_s=20.0,
        validation={"bits_per_character": 3.5},
        sample="and so on",
    )
    return msgspec.structs.replace(status, **changes)


def show_status(run: Run | RunFolder, **changes: Any) -> None:  # noqa: ANN401
    folder = run.folder if isinstance(run, Run) else run
    write_status(folder.status, status_of(folder.path.name, **changes))


def made_anew(run: Run) -> None:
    """Another run in the folder of this one."""
    origin = run.folder.origin.read_bytes()
    run.folder.origin.unlink()
    run.folder.metrics.unlink(missing_ok=True)
    run.folder.origin.with_suffix(".other").write_bytes(b"")  # takes the place that the file had on the disk
    run.folder.origin.write_bytes(origin)


def answered(run: Run, text: str) -> tuple[threading.Thread, list[orders.Order]]:
    """A server that takes one order."""
    taken: list[orders.Order] = []

    def serve() -> None:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and not taken:
            for slip, order in orders.take(run.folder.orders)[0]:
                taken.append(order)
                orders.reply(slip, orders.Answer(True, text))

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, taken

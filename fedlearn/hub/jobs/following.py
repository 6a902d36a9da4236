"""Streams of a job: its log, and the events of its training."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, final

from fedlearn.board.growing import GrowingFile
from fedlearn.board.watching import event
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.logs.samples import Sample

INTERVAL_S = 0.3
PIECE_BYTES = 256 * 1024
KEEP_ALIVE_S = 15.0
"""Seconds between lines that keep proxies from closing a stream, and find readers that are gone."""

OVER = ("completed", "stopped", "failed")


async def follow_log(path: Path, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The lines of a log from its beginning, and those that are added until the job is over."""
    position = 0
    while True:
        over = is_over()  # asked first: what is written before that is read
        piece = await asyncio.to_thread(_read, path, position)
        position += len(piece)
        if piece:
            yield piece
        elif over:
            return
        else:
            await asyncio.sleep(INTERVAL_S)


def _read(path: Path, position: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read(PIECE_BYTES)
    except OSError:
        return b""


@final
class Telling:
    """The events of one job for one reader."""

    def __init__(self, record: JobRecord, n_steps: int, *, metrics: Path, samples: Path, after: int = -1) -> None:
        self._steps = GrowingFile(metrics, StepMetrics)
        self._samples = GrowingFile(samples, Sample)
        self._after = after
        self._per_epoch = max(n_steps // max(record.epochs, 1), 1)
        self._figures: dict[str, float | None] = {}
        self._measured = -1
        """The step whose weights were measured for the figures."""
        self._losses: list[float] = []
        self._ended: list[tuple[int, float | None]] = []
        """Epochs that have ended and whose weights are not measured yet, with the mean of their losses."""

    def read(self) -> bytes:
        """The new events as server-sent events; empty if there are none."""
        lines, events = self._steps.read()[0], b""
        for line in lines:
            events += self._step(line)
        events += _event("timing_stats", lines[-1].step, _timing(lines[-1])) if events else b""
        for sample in self._samples.read()[0]:
            events += self._sample(sample)
        # An examination may have been left out, since the one before it took so long.
        while len(self._ended) > 1:
            events += self._epoch()
        return events

    def end(self) -> bytes:
        """The epochs whose weights were never measured."""
        events = self.read()
        while self._ended:
            events += self._epoch()
        return events

    def _step(self, line: StepMetrics) -> bytes:
        if line.loss is not None:
            self._losses.append(line.loss)
        events = _event("training_data", line.step, self._training(line)) if line.step > self._after else b""
        if (line.step + 1) % self._per_epoch == 0:
            mean = sum(self._losses) / len(self._losses) if self._losses else None
            self._losses.clear()
            if line.step > self._after:
                self._ended.append(((line.step + 1) // self._per_epoch, mean))
        return events

    def _sample(self, sample: Sample) -> bytes:
        """The epochs that had ended when the weights were measured."""
        self._figures, self._measured = sample.figures, sample.step
        events = b""
        while self._ended and self._ended[0][0] * self._per_epoch <= sample.step:
            events += self._epoch()
        return events

    def _training(self, line: StepMetrics) -> dict[str, Any]:
        return {
            "step": line.step,
            "epoch": line.step // self._per_epoch + 1,
            "loss": line.loss,
            "accuracy": self._figures.get("accuracy"),
            "members": line.members,
            "volunteers": line.volunteers,
        }

    def _epoch(self) -> bytes:
        epoch, loss = self._ended.pop(0)
        epoch_figures = {
            "epoch": epoch,
            "loss": loss,
            "accuracy": self._figures.get("accuracy"),
            "validation": self._figures,
            "validated_at_step": self._measured if self._figures else None,
        }
        return _event("epoch_stats", epoch * self._per_epoch - 1, epoch_figures)


def _timing(line: StepMetrics) -> dict[str, Any]:
    return {
        "step": line.step,
        "seconds": line.elapsed_s,
        "work_per_s": line.work_per_s,
        "bytes_in": line.bytes_in,
        "bytes_out": line.bytes_out,
    }


def _event(name: str, step: int, content: dict[str, Any]) -> bytes:
    return b"id: %d\n" % step + event(name, content)


async def follow_events(jobs: Jobs, record: JobRecord, after: int) -> AsyncIterator[bytes]:
    """The events of a job until it is over; `after`: only those of later steps than this one."""
    yield b"retry: 2000\n\n"
    telling: Telling | None = None
    silent_s = 0.0
    while True:
        over = record.status in OVER
        if telling is None:
            telling = await asyncio.to_thread(_begin, jobs, record, after)
        events = await asyncio.to_thread(telling.read) if telling is not None else b""
        if events:
            silent_s = 0.0
            yield events
        elif over:
            if telling is not None:
                yield await asyncio.to_thread(telling.end)
            return
        else:
            await asyncio.sleep(INTERVAL_S)
            silent_s += INTERVAL_S
        if silent_s >= KEEP_ALIVE_S:
            silent_s = 0.0
            yield b": still here\n\n"


def _begin(jobs: Jobs, record: JobRecord, after: int) -> Telling | None:
    """Makes the source of a job's events for a reader; None before its server has written a status."""
    run, status = jobs.run(record), jobs.status(record)
    if run is None or status is None:
        return None
    return Telling(record, status.steps, metrics=run.metrics, samples=run.samples, after=after)

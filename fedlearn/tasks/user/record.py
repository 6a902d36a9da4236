"""The record that a run keeps of a user's task, by which it can be replayed without the task's code."""

from collections.abc import Mapping
from typing import final

import msgspec
import safetensors.numpy

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.environment.registered import Registered
from fedlearn.tasks.kind import Examiner
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.row_masks import RowReader


class TaskRecord(msgspec.Struct, frozen=True):
    """The content of `task.json` in the run's data folder."""

    layout: ParameterLayout
    reads: dict[str, str]
    batch_size: int
    unit: str
    work_per_member: int
    identity: dict[str, str]
    n_blocks: int
    registered: Registered | None = None
    """The values by which the task is made again, where no part of it is a user's code."""


@final
class RecordedObjective(Objective):
    """An objective that knows noise and row masks, but cannot run trials."""

    def __init__(self, record: TaskRecord, *, seed: int) -> None:
        self.layout = record.layout
        self.unit = record.unit
        self.work_per_member = record.work_per_member
        self._reader = RowReader(record.layout, record.reads, batch_size=record.batch_size, seed=seed)

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        return self._reader.row_masks(update, data)

    def initial_weights(self) -> Float32Array:
        raise ValueError("task: expected the task's own file for its start, got a record of it")

    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        del weights, data, trials, threads
        raise ValueError("task: expected the task's own file for its losses, got a record of it")


@final
class RecordedExaminer(Examiner):
    """An examiner that shows losses as they are, and exports what was learned alone."""

    def __init__(self, layout: ParameterLayout) -> None:
        self._layout = layout

    def show(self, loss: float) -> tuple[str, float]:
        return "loss", loss

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        del weights, threads
        return {}

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return safetensors.numpy.save(self._layout.split(weights), {"format": "pt", **about})

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        del weights, about
        raise ValueError("onnx: expected the recurrent network, got a task whose code is not here; export safetensors")

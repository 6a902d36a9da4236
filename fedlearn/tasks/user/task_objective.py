"""The objective of a user's task: fedlearn draws noise and rows, and the task computes losses."""

from threading import Lock
from typing import final

import numpy as np

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import member_noise
from fedlearn.es.replica import UInt8Array
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, drawn_rows, group_words, n_rows
from fedlearn.tasks.row_masks import RowReader
from fedlearn.tasks.task import Batch, Device, Task, flat_weights

NOISE_BYTES = 2**28
"""The most bytes of noise of the members that run in one call."""


@final
class TaskObjective:
    """Runs the trials of a user's task; tasks with PyTorch run them on `device`."""

    def __init__(self, task: Task, *, seed: int, device: Device = "cpu") -> None:
        self.task = task
        self.layout: ParameterLayout = task.layout
        self.unit = task.unit
        self._seed = seed
        self._device: Device = device
        self._threads: int | None = None
        self.in_use = Lock()
        """A lock held while the task computes, since trials and examinations load weights into the same module."""
        self._reader = RowReader(self.layout, task.reads, batch_size=task.batch_size, seed=seed)

    @property
    def work_per_member(self) -> int:
        return self.task.work_per_member

    def initial_weights(self) -> Float32Array:
        return flat_weights(self.task.tensors)

    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        groups_at_once = max(NOISE_BYTES // (trials.group_size * self._noise_bytes(trials)), 1)
        losses = []
        with self.in_use:
            if threads != self._threads:
                self.task.use(self._device, threads=threads)
                self._threads = threads
            for first in range(0, trials.n_groups, groups_at_once):
                part = trials.part(first, min(groups_at_once, trials.n_groups - first))
                losses.append(self._evaluate(weights, data, part))
        return np.concatenate(losses)

    def report(self) -> str:
        return self.task.report()

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        return self._reader.row_masks(update, data)

    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        del threads  # the noise of one piece after another is made
        group_bytes = trials.group_size * self._noise_bytes(trials)
        groups_at_once = min(max(NOISE_BYTES // max(group_bytes, 1), 1), trials.n_groups)
        return groups_at_once * (3 * group_bytes + self._row_bytes(data)) + 4 * trials.n_members

    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        return n_groups * (2 * self._reader.n_mask_columns + 3 * self._row_bytes(data)) if self.task.reads else 0

    def _row_bytes(self, data: Columns) -> int:
        """Bytes of one group's rows and of the random words that chose them."""
        row_bytes = sum(column.nbytes for column in data.values()) // max(n_rows(data), 1)
        return (1 + self.task.batch_size) * (32 + row_bytes)

    def _evaluate(self, weights: Float32Array, data: Columns, trials: Trials) -> Float32Array:
        words = group_words(self._seed, trials.step, trials.first_group, trials.n_groups, self.task.batch_size)
        batch = Batch(drawn_rows(data, words), tuple(words[:, 0].tolist()))
        noise = member_noise(self.layout, trials, seed=self._seed)
        members = self.task.members(weights, noise, n_groups=trials.n_groups)
        try:
            losses = np.asarray(self.task.losses(members, batch), dtype=np.float32)
        except Exception as error:
            error.add_note(f"the loss of a task of kind {self.task.kind} failed on {_described(batch.rows)}")
            raise
        if losses.shape != (trials.n_members,):
            raise ValueError(
                f"losses: expected a number for each of {trials.n_members} members, got shape {list(losses.shape)}; "
                "a loss must give one number per member"
            )
        return losses

    def _noise_bytes(self, trials: Trials) -> int:
        """Bytes of one member's noise."""
        rank = trials.perturbation.rank
        low_rank = [rank * sum(tensor.sides) for tensor in self.layout.tensors if tensor.is_matrix and rank]
        dense = [tensor.size for tensor in self.layout.tensors if not (tensor.is_matrix and rank)]
        return 4 * sum([*low_rank, *dense])


def _described(rows: Columns) -> str:
    """The shapes of the columns that each group was given, in words."""
    columns = [f"{name} {column.dtype} {list(column.shape[1:])}" for name, column in rows.items()]
    return f"rows with the columns {', '.join(columns)}" if columns else "weights without rows of data"

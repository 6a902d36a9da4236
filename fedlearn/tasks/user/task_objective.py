"""The objective of a user's task: fedlearn draws noise and rows, and the task computes losses."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.correlation import correlated_noise
from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import member_noise
from fedlearn.es.replica import UInt8Array
from fedlearn.es.sums.estimate import Dither
from fedlearn.es.sums.moments import Int64Array
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, drawn_rows, group_words, n_rows
from fedlearn.tasks.limits import SUM_BYTES
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.passes import Passes
from fedlearn.tasks.row_masks import RowReader
from fedlearn.tasks.task import Batch, Device, LossGradients, Task, flat_weights, most_at_once
from fedlearn.tasks.user.local_steps import local_steps

NOISE_BYTES = 2**28
"""The most bytes of noise of the members that run in one call."""

LOCAL_BYTES = 48
"""Bytes of a parameter in local steps: its weight, the optimizer's state, the gradient, and what a step makes of it."""

GREATEST_SUM = 2.0**62
"""The bound of a sum before it is rounded, which keeps it an integer of 64 bits."""


@final
class TaskObjective(Objective):
    """Runs the trials of a user's task; tasks with PyTorch run them on `device`."""

    def __init__(self, task: Task, *, seed: int, device: Device = "cpu", batch_size: int = 0) -> None:
        """Groups have `batch_size` rows; 0 means the task's own number. Initial weights that are random are of
        `seed`."""
        self.task = task
        task.draw_weights(seed)
        self.batch_size = batch_size or task.batch_size
        self.layout = task.layout
        self.unit = task.unit
        self.work_per_member = task.work_per_member * self.batch_size // task.batch_size
        self._seed = seed
        self._passes = Passes(seed)
        self._device: Device = device
        self._threads: int | None = None
        self.in_use = Lock()
        """A lock held while the task computes, since trials and examinations load weights into the same module."""
        self._reader = RowReader(self.layout, task.reads, batch_size=self.batch_size, seed=seed)

    def measuring(self, what: str) -> "TaskObjective":
        """The same with as many rows in a group as the task has for a run by "losses", or by "gradients"."""
        batch_size = (self.task.batch_size_by_losses if what == "losses" else 0) or self.task.batch_size
        if batch_size == self.batch_size:
            return self
        return TaskObjective(self.task, seed=self._seed, device=self._device, batch_size=batch_size)

    def initial_weights(self) -> Float32Array:
        return flat_weights(self.task.tensors)

    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        return self.observe(weights, data, trials, threads=threads).losses

    def observe(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        groups_at_once = max(NOISE_BYTES // (trials.group_size * self._noise_bytes(trials)), 1)
        parts = [
            trials.part(first, min(groups_at_once, trials.n_groups - first))
            for first in range(0, trials.n_groups, groups_at_once)
        ]
        with self._computing(threads):
            found = [self._observed(weights, data, part) for part in parts]
        return TrialResults(
            np.concatenate([losses for losses, _ in found]), moments=np.concatenate([moments for _, moments in found])
        )

    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses of unperturbed weights, one for each group, and the sum of their gradients.

        Where groups take local steps, each member's loss is that before its step, and the sum is how far the steps of
        all groups lead back.

        Raises:
            ValueError: the trials have noise.
            NoGradientError: only losses of the task are known.
        """
        if trials.perturbation.space != "nothing":
            raise ValueError(
                "perturb, head: expected weights and perturbed, got a task that can't sum what noise tells"
            )
        # Each member has rows of its own.
        words = group_words(self._seed, trials.step, trials.first_member, trials.n_members, self.batch_size)
        with self._computing(threads):
            batch = Batch(self._passes.columns(data, trials, words), tuple(words[:, 0].tolist()))
            found = self._found(weights, batch, trials, threads=threads)
        with np.errstate(over="ignore"):  # of sums that are clipped anyway
            total = found.total * np.float32(2.0**trials.perturbation.unit_bits)
        np.rint(np.clip(total, -GREATEST_SUM, GREATEST_SUM, out=total), out=total)
        dither = Dither(self._seed, trials.step, trials.first_member, bits=trials.perturbation.sum_bits)
        return TrialResults(found.losses, dither.encode(self.layout, total.astype(np.int64)))

    def _found(self, weights: Float32Array, batch: Batch, trials: Trials, *, threads: int) -> LossGradients:
        """The losses of members and the sum over groups; the batch has rows for each member.

        Raises:
            ValueError: groups can't be cut into steps.
        """
        steps, size = trials.perturbation.local_steps, trials.group_size
        if steps is None:
            if size > 1:
                raise ValueError(f"group_size: expected 1 without local steps, got {size}")
            return self.task.loss_gradients(weights, batch)
        if size % steps.n_members:
            raise ValueError(f"group_size: expected a multiple of {steps.n_members}, got {size}")
        losses, total = [], np.zeros(self.layout.size)
        for group in range(trials.n_groups):

            def gradients(own: Float32Array, first: int, *, before: int = group * size) -> LossGradients:
                return self.task.loss_gradients(own, _part(batch, before + first, steps.n_members))

            found = local_steps(self.layout, weights, steps, gradients, n_members=size, threads=threads)
            losses.append(found.losses)
            total += found.total
        return LossGradients(np.concatenate(losses), total.astype(np.float32))

    def first_gradient(self, weights: Float32Array, data: Columns, *, n_groups: int = 1) -> LossGradients:
        """The losses and the sum of the gradients for the rows of the first groups of step 0.

        Raises:
            NoGradientError: only losses of the task are known.
        """
        words = group_words(self._seed, 0, 0, n_groups, self.batch_size)
        with self._computing(0), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers taken out of tensors, which is no fault here
            return self.task.loss_gradients(weights, _batch_of(data, words))

    def report(self) -> str:
        return self.task.report()

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        return self._reader.row_masks(update, data)

    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        del threads  # the noise of one piece after another is made
        if trials.perturbation.space == "nothing":
            backward_bytes = self.task.backward_bytes
            steps = trials.perturbation.local_steps
            at_once = min(most_at_once(backward_bytes), steps.n_members if steps else trials.n_members)
            parameter_bytes = SUM_BYTES + (LOCAL_BYTES if steps else 0)
            rows = trials.n_members * self._row_bytes(data)
            return at_once * backward_bytes + rows + parameter_bytes * self.layout.size
        group_bytes = trials.group_size * self._noise_bytes(trials)
        groups_at_once = min(max(NOISE_BYTES // max(group_bytes, 1), 1), trials.n_groups)
        return groups_at_once * (3 * group_bytes + self._row_bytes(data)) + 4 * trials.n_members

    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        return n_groups * (2 * self._reader.n_mask_columns + 3 * self._row_bytes(data)) if self.task.reads else 0

    def _row_bytes(self, data: Columns) -> int:
        """Bytes of one group's rows and of the random words that chose them."""
        row_bytes = sum(column.nbytes for column in data.values()) // max(n_rows(data), 1)
        return (1 + self.batch_size) * (32 + row_bytes)

    @contextmanager
    def _computing(self, threads: int) -> Iterator[None]:
        """Holds the lock, with the task on the device and with this number of threads."""
        with self.in_use:
            if threads != self._threads:
                self.task.use(self._device, threads=threads)
                self._threads = threads
            yield

    def _words_of(self, trials: Trials) -> NDArray[np.uint64]:
        return group_words(self._seed, trials.step, trials.first_group, trials.n_groups, self.batch_size)

    def _observed(self, weights: Float32Array, data: Columns, trials: Trials) -> tuple[Float32Array, Int64Array]:
        batch = _batch_of(data, self._words_of(trials))
        if self.layout.is_correlated:
            noise = correlated_noise(self.layout, weights, trials, seed=self._seed)
        else:
            noise = member_noise(self.layout, trials, seed=self._seed)
        members = self.task.members(weights, noise, n_groups=trials.n_groups)
        try:
            found, moments = self.task.observe(members, batch)
            losses = np.asarray(found, dtype=np.float32)
        except Exception as error:
            error.add_note(f"the loss of a task of kind {self.task.kind} failed on {_described(batch.rows)}")
            raise
        if losses.shape != (trials.n_members,):
            raise ValueError(
                f"losses: expected a number for each of {trials.n_members} members, got shape {list(losses.shape)}; "
                "a loss must give one number per member"
            )
        return losses, moments

    def _noise_bytes(self, trials: Trials) -> int:
        """Bytes of one member's noise."""
        rank = trials.perturbation.rank
        low_rank = [rank * sum(tensor.sides) for tensor in self.layout.tensors if tensor.is_matrix and rank]
        dense = [tensor.size for tensor in self.layout.tensors if not (tensor.is_matrix and rank)]
        return 4 * sum([*low_rank, *dense])


def _batch_of(data: Columns, words: NDArray[np.uint64]) -> Batch:
    return Batch(drawn_rows(data, words), tuple(words[:, 0].tolist()))


def _part(batch: Batch, first: int, n_members: int) -> Batch:
    some = slice(first, first + n_members)
    return Batch({name: column[some] for name, column in batch.rows.items()}, batch.seeds[some])


def _described(rows: Columns) -> str:
    """The shapes of the columns that each group was given, in words."""
    columns = [f"{name} {column.dtype} {list(column.shape[1:])}" for name, column in rows.items()]
    return f"rows with the columns {', '.join(columns)}" if columns else "weights without rows of data"

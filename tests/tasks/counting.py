"""A task that remembers what it was given, for tests of what surrounds tasks."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.task import Batch, Device, Members, Task


class CountingTask(Task):
    """Its loss is the sum of all elements, and of the column `x` where there are data."""

    kind: ClassVar[str] = "counting"
    unit: ClassVar[str] = "beans"

    def __init__(
        self, tensors: Mapping[str, Float32Array], data: Columns | None = None, *, batch_size: int = 3
    ) -> None:
        self._tensors = tensors
        self.data = data or {}
        self.batch_size = batch_size
        self.batches: list[Batch] = []
        self.uses: list[tuple[Device, int]] = []
        self.frozen_arrays: dict[str, Float32Array] = {}

    @property
    def tensors(self) -> Mapping[str, Float32Array]:
        return self._tensors

    @property
    def frozen(self) -> Columns:
        return self.frozen_arrays

    def losses(self, members: Members, batch: Batch) -> Sequence[float] | Float32Array:
        self.batches.append(batch)
        assert len(batch.seeds) == members.n_groups
        sums = np.array([sum(float(array.sum()) for array in arrays.values()) for arrays in members.each()])
        if "x" in batch.rows:
            sums += np.repeat(batch.rows["x"].sum(axis=1), members.group_size)
        losses: list[float] = sums.tolist()
        return losses

    def use(self, device: Device, *, threads: int) -> None:
        self.uses.append((device, threads))

"""Batches that machines with a whole model each share between them, so that a step is one of plain PyTorch."""

import math

import msgspec

from fedlearn.tasks.task import Setting

MOST_PARTS = 3
"""The most parts of a batch for each machine."""


class SharedBatch(msgspec.Struct, frozen=True):
    """A batch, cut into parts of which each machine measures some."""

    n_parts: int
    part_size: int
    """Rows of a part."""
    n_batches: int
    """Batches of a step."""

    @classmethod
    def of(cls, batch_size: int, n_machines: int, *, n_batches: int = 1) -> "SharedBatch":
        """The batch in equal parts, at least one for each machine.

        Where few equal parts make no such batch, it has some rows more.
        """
        few = range(min(n_machines, batch_size), MOST_PARTS * n_machines + 1)
        n_parts = next((n for n in few if batch_size % n == 0), few[0])
        return cls(n_parts, math.ceil(batch_size / n_parts), n_batches)

    def steps_of(self, n_rows: int) -> int:
        """Steps of a pass over so many rows."""
        return math.ceil(n_rows / (self.n_parts * self.part_size * self.n_batches))

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings of a run whose volunteers measure gradients of the parts, which are exchanged after each step."""
        return {
            "measure": "gradients",
            "local_steps": 1,
            "sum_bits": 8,
            "population_limit": self.n_parts * self.n_batches,
            "time_per_step": 600.0,
        }

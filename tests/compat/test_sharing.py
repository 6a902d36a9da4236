"""Batches, cut for machines that each hold the whole model."""

import pytest

pytest.importorskip("torch", reason="compat is of PyTorch")

from fedlearn.compat.sharing import SharedBatch


@pytest.mark.parametrize(
    ("batch_size", "n_machines", "n_batches", "members", "part_size", "steps"),
    [
        (40, 1, 1, 1, 40, 41),
        (40, 3, 1, 4, 10, 41),
        (40, 2, 4, 8, 20, 11),
        (41, 3, 1, 3, 14, 39),  # 41 is a prime number
        (49, 3, 1, 7, 7, 33),
        (49, 2, 1, 2, 25, 33),  # 7 parts are too many for 2
        (2, 5, 1, 2, 1, 809),
        (1617, 1, 1, 1, 1617, 1),
    ],
)
def test_parts_make_a_batch_and_steps_a_pass(
    batch_size: int, n_machines: int, n_batches: int, members: int, part_size: int, steps: int
) -> None:
    batch = SharedBatch.of(batch_size, n_machines, n_batches=n_batches)
    assert (batch.settings["population_limit"], batch.part_size) == (members, part_size)
    assert batch.steps_of(1617) == steps
    assert members * part_size >= batch_size * n_batches or batch_size < n_machines

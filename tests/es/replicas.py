"""A small replica, and Updates for it that follow from their step."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.optimizers.lion import Lion
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import DecayTowards, Update

LAYOUT = ParameterLayout(
    (
        TensorSpec("matrix", (5, 3), scale=10.0, mask_column=0),
        TensorSpec("vector", (7,)),
        TensorSpec("square", (4, 4)),
    )
)
WEIGHTS = np.linspace(-1, 1, LAYOUT.size, dtype=np.float32)
SPANS = ((0, 8), (20, 4))
ADAM = Adam(0.01, 0.9, 0.99)
MOMENTUM = Sgd(0.01, 0.9)
LION = Lion(0.01, 0.9, 0.99)


def masks_of(update: Update) -> NDArray[np.uint8]:
    """Row r of the matrix takes part in group g unless r + g is a multiple of 3."""
    groups = [
        first // update.group_size + i for first, count in update.spans for i in range(count // update.group_size)
    ]
    rows = np.array(groups)[:, np.newaxis] + np.arange(5)
    mask: NDArray[np.uint8] = (rows % 3 != 0).astype(np.uint8)
    return mask


def restored(snapshot: Snapshot, *, layout: ParameterLayout = LAYOUT, threads: int = 1) -> Replica:
    return Replica(layout, snapshot, seed=99, row_masks=masks_of, threads=threads)


def new_replica(*, step: int = 0, keeps_start: bool = False, threads: int = 1) -> Replica:
    return restored(genesis(LAYOUT, WEIGHTS, step=step, keeps_start=keeps_start), threads=threads)


def update_of(
    step: int, *, optimizer: AnyOptimizer = ADAM, rank: int = 2, decay: float = 0.0, towards: DecayTowards = "zero"
) -> Update:
    n_members = sum(count for _, count in SPANS)
    return Update(
        step=step,
        block=bytes(16),
        spans=SPANS,
        utilities=np.random.default_rng(step).integers(-127, 128, n_members).astype(np.int8),
        rank=rank,
        group_size=4,
        gradient_scale=-0.001,
        optimizer=optimizer,
        antithetic=False,
        weight_decay=decay,
        decay_towards=towards,
        elapsed_s=0.0,
        shaping_scale=0.1,
    )


def without_members(update: Update) -> Update:
    return msgspec.structs.replace(update, spans=(), utilities=np.zeros(0, dtype=np.int8))


def replay(n_steps: int, *, optimizer: AnyOptimizer = ADAM, threads: int = 1) -> Replica:
    replica = new_replica(threads=threads)
    for step in range(n_steps):
        replica.apply(update_of(step, optimizer=optimizer))
    return replica

"""A model held whole and in three parts: a root, a stem and a leaf, with a tied tensor and a head in shards."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.replica import Replica
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.update import Update

WHOLE = ParameterLayout(
    (
        TensorSpec("embedding", (300, 12), scale=2.0, mask_column=0),
        TensorSpec("inner", (40, 12)),
        TensorSpec("bias", (40,), scale=0.5),
        TensorSpec("kernel", (6, 2, 3, 3)),
        TensorSpec("constant", (5,), scale=0.0),
        TensorSpec("head", (300, 40)),
        TensorSpec("head_bias", (300,)),
        TensorSpec("start", (9,), mask_column=300),
    )
)

SHARD = (129, 171)
"""Rows of the head that the leaf holds; neither a multiple of 128 nor of a word."""

PARTS = {
    "root": WHOLE.part(["embedding", "inner", "start"], {"embedding": (0, 128)}),
    "stem": WHOLE.part(["bias", "kernel", "constant", "embedding"]),
    "leaf": WHOLE.part(["head", "head_bias", "embedding"], {"head": SHARD, "head_bias": SHARD}),
    "shard": WHOLE.part(["head", "head_bias"], {"head": (0, 129), "head_bias": (0, 129)}),
}

Encode = Callable[[ParameterLayout, NDArray[np.int32]], CodedEstimate]
N_GROUPS = 4
SEED = 2**50 + 7


def row_masks(update: Update) -> NDArray[np.uint8]:
    """Which rows each group reads, a word of chance each."""
    n_groups = update.n_members // update.group_size
    masks: NDArray[np.uint8] = np.random.default_rng(update.step).integers(0, 2, (n_groups, 301)).astype(np.uint8)
    return masks


def seated(whole: Replica, part: ParameterLayout) -> Replica:
    """A replica of the part, as the whole one is now."""
    return Replica(part, whole.snapshot(part), seed=SEED, row_masks=row_masks, threads=1, whole=whole.layout)


def pieces(layout: ParameterLayout, part: ParameterLayout, flat: Float32Array) -> Float32Array:
    """What the part has of a flat array, by names and rows."""
    tensors = layout.split(flat)
    cut = [tensors[piece.name][piece.first_row :][: piece.shape[0]] for piece in part.tensors]
    return np.concatenate([flat[:0], *(piece.reshape(-1) for piece in cut)])


def assert_equal_to_the_bit(found: Float32Array, expected: Float32Array) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))

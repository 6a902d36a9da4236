"""A volunteer's partial sum of the gradient, as integers that add up to the same total in any order."""

import math

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import UTILITY_RESOLUTION, normalized, spread_of

Float32Array = NDArray[np.float32]

GREATEST_SUM = 2**31 - 1
GREATEST_FACTOR = 2.0**40
"""The greatest factor, which takes any integer but 0 to the greatest sum and cannot overflow."""


def partial_sum(
    layout: ParameterLayout,
    perturbation: Perturbation,
    losses: Float32Array,
    *,
    seed: int,
    step: int,
    first_member: int,
    group_size: int,
    row_masks: NDArray[np.uint8] | None,
    threads: int,
) -> NDArray[np.int64]:
    """The sum over groups of the gradient estimate, times `ESTIMATE_UNIT`, int64 [n_parameters].

    The members perturb weights and follow each other from `first_member` on. Utilities are normalized by the spread of
    these losses [n_members]; sums are clipped to 32 bits.

    Raises:
        ValueError: sigma is 0, so members do not differ.
    """
    if not perturbation.sigma > 0.0:
        raise ValueError(f"sigma: expected above 0, so that members differ, got {perturbation.sigma}")
    scale = spread_of(losses, group_size)
    estimate = es_core.estimate_gradient(
        layout.table(perturbation.rank),
        layout.size,
        seed=seed,
        step=step,
        group_size=group_size,
        spans=[(first_member, losses.size)],
        utilities=normalized(losses, group_size, scale),
        row_masks=row_masks,
        antithetic=perturbation.antithetic,
        threads=threads,
    )
    factor = -min(
        es_core.ESTIMATE_UNIT * scale / (UTILITY_RESOLUTION * group_size * perturbation.sigma), GREATEST_FACTOR
    )
    summed = np.empty(layout.size, dtype=np.int64)
    for tensor, offset in zip(layout.tensors, layout.offsets, strict=True):
        interval = slice(offset, offset + tensor.size)
        rank = perturbation.rank if tensor.is_matrix else 0
        sums = estimate[interval] * (factor / math.sqrt(max(rank, 1)))
        summed[interval] = np.rint(np.clip(sums, -GREATEST_SUM, GREATEST_SUM))
    return summed

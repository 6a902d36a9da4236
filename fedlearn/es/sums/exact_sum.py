"""A volunteer's exact sum: its members' part of the integers that replicas compute from utilities.

The gradient estimate of a step is a sum of integers over its members, so the parts add up to what everybody would find
by replaying all members: steps by replay and steps by sum are the same to the bit.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.optimizers import Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica
from fedlearn.es.sums.estimate import MAX_UTILITY, CodedEstimate, Integers, encode_exactly
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update

Float32Array = NDArray[np.float32]
Int8Array = NDArray[np.int8]

MOST_DEVIATIONS = 8.0
"""The greatest length of a sum of random signs, in standard deviations; honest sums exceed it with probability
1e-15."""


def exact_sum(replica: Replica, trials: Trials, block: bytes, losses: Float32Array) -> CodedEstimate:
    """The estimate that an Update of these trials alone would have; `losses` are float32 [n_members].

    Raises:
        ValueError: the trials have no shaping.
    """
    if trials.shaping is None:
        raise ValueError("shaping: expected a rule and a scale, got none; trials without them are replayed")
    alone = Update(
        step=trials.step,
        block=block,
        spans=((trials.first_member, trials.n_members),),
        utilities=trials.shaping.utilities(losses, trials.group_size),
        rank=trials.perturbation.rank,
        group_size=trials.group_size,
        gradient_scale=0.0,
        optimizer=Sgd(0.0, 0.0),
        antithetic=trials.perturbation.antithetic,
        weight_decay=0.0,
        decay_towards="zero",
        elapsed_s=0.0,
        shaping_scale=trials.shaping.scale,
    )
    return encode_exactly(replica.layout, replica.replayed(alone))


def complaint_of(sums: Integers, utilities: Int8Array, layout: ParameterLayout, perturbation: Perturbation) -> str:
    """The reason for which the integers [n_parameters] can't be the sum of these utilities; empty if they can.

    No element exceeds the sum of all members with one sign, and a sum of random signs has a length that hardly varies.
    """
    ranks = [max(perturbation.rank, 1) if tensor.is_matrix else 1 for tensor in layout.tensors]
    most = MAX_UTILITY * utilities.size * max(ranks)
    if (greatest := int(np.abs(sums).max(initial=0))) > most:
        return f"estimate: expected numbers up to {most} of {utilities.size} members, got {greatest}"
    energy = sum(rank * tensor.size for rank, tensor in zip(ranks, layout.tensors, strict=True))
    squares = float((utilities.astype(np.float64) ** 2).sum()) * (2.0 if perturbation.antithetic else 1.0)
    # BLAS is avoided: its threads cost a server more than they save.
    length = math.sqrt(float((sums.astype(np.float64) ** 2).sum()))
    longest = MOST_DEVIATIONS * math.sqrt(energy * squares)
    if length > longest:
        return f"estimate: expected a length up to {longest:.3g} by the losses that came with it, got {length:.3g}"
    return ""

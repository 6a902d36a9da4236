"""Local steps: a volunteer takes steps of its own from the weights that all share, and sends how far it went.

The optimizer's state is new in each lease: whoever has the weights and the data can repeat it, and a newcomer's steps
are worth as much as anybody's.

Sources: Stich, "Local SGD Converges Fast and Communicates Little", arXiv 1805.09767; Douillard et al., "DiLoCo:
Distributed Low-Communication Training of Language Models", arXiv 2311.08105.
"""

import math
from collections.abc import Callable

import numpy as np

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.perturbation import LocalSteps
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.sums.estimate import Int32Array
from fedlearn.es.update import Update
from fedlearn.tasks.task import LossGradients

GRADIENT_BITS = 24
"""Bits of the greatest integer of a gradient, as many as a float32 has."""

LEAST_EXPONENT = -100
"""The exponent of the least gradient that is told from zero."""


def local_steps(
    layout: ParameterLayout,
    weights: Float32Array,
    steps: LocalSteps,
    gradients: Callable[[Float32Array, int], LossGradients],
    *,
    n_members: int,
    threads: int = 0,
) -> LossGradients:
    """The loss of each member of a group, before the step that it is of, and how far all steps lead back to `weights`
    [n_parameters].

    `gradients(weights, first)` gives the losses of the members of a step, of which `first` is the first, and the sum of
    their gradients. Where one of them is not finite, all losses are infinite and the steps lead nowhere.
    """
    own = Replica(layout, genesis(layout, weights, threads=threads), seed=0, row_masks=_no_masks, threads=threads)
    losses = np.full(n_members, np.inf, dtype=np.float32)
    for first in range(0, n_members, steps.n_members):
        found = gradients(own.weights, first)
        if not np.isfinite(found.losses).all():
            break
        losses[first : first + steps.n_members] = found.losses
        estimate, unit = _as_integers(found.total)
        own.take(_update(own.step, steps.optimizer, unit / steps.n_members), estimate)
    if not (np.isfinite(losses).all() and np.isfinite(own.weights).all()):
        return LossGradients(np.full_like(losses, np.inf), np.zeros_like(weights))
    return LossGradients(losses, weights - own.weights)


def _as_integers(gradient: Float32Array) -> tuple[Int32Array, float]:
    """A gradient as integers, and what one of them is worth: a power of two."""
    greatest = max(float(gradient.max(initial=0.0)), -float(gradient.min(initial=0.0)))
    # A power of two, whose inverse is a float32 also where gradients are as good as zero.
    unit = 2.0 ** (max(math.frexp(greatest)[1], LEAST_EXPONENT) - GRADIENT_BITS) if greatest > 0.0 else 1.0
    scaled = gradient * np.float32(1.0 / unit)
    return np.rint(scaled, out=scaled).astype(np.int32), unit


def _update(step: int, optimizer: AnyOptimizer, gradient_scale: float) -> Update:
    return Update(
        step=step,
        block=b"",
        spans=(),
        utilities=np.zeros(0, dtype=np.int8),
        rank=0,
        group_size=1,
        gradient_scale=gradient_scale,
        optimizer=optimizer,
        antithetic=False,
        weight_decay=0.0,
        decay_towards="zero",
        elapsed_s=0.0,
        shaping_scale=0.0,
    )


def _no_masks(update: Update) -> None:
    del update

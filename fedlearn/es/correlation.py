"""Correlated noise: a matrix, the factor, turns the signs of a member into its move, so that noise can learn the shape
of a function's valley.

The weights hold the factor in a tensor of their own, which the optimizer adapts.
"""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import Dense, TensorNoise, member_noise
from fedlearn.es.optimizers import SearchStep, exact_arithmetic
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update


def start_factor(n: int) -> Float32Array:
    """The factor [n, n] before it has learned anything: an orthogonal matrix, equal to the bit on every machine.

    It mixes all signs, since signs themselves say nothing of single parameters: their squares are always 1. Each of
    its stages turns pairs of neighbouring rows by an eighth of a circle and moves them apart, as in a fast Fourier
    transform.
    """
    factor, half = np.eye(n), n // 2
    shuffled = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)])
    with exact_arithmetic():
        for _ in range(math.ceil(math.log2(n))):
            factor = factor[shuffled]
            first, last = factor[:half].copy(), factor[n - half :].copy()
            factor[:half], factor[n - half :] = (first + last) * math.sqrt(0.5), (last - first) * math.sqrt(0.5)
    return factor.astype(np.float32)


def correlated_noise(layout: ParameterLayout, weights: Float32Array, trials: Trials, *, seed: int) -> list[TensorNoise]:
    """The noise of the trials' members, one entry for each tensor, by the factor that the weights hold."""
    scales = _scales(layout)
    moves = _signs(layout, trials, seed=seed, threads=1) @ _factor(layout, weights).T
    moves *= np.float32(trials.perturbation.sigma) * scales
    noise: list[TensorNoise] = []
    first = 0
    for tensor in layout.tensors:
        last = first + (tensor.size if tensor.scale != 0.0 else 0)
        own = moves[:, first:last] if last > first else np.zeros((len(moves), tensor.size), dtype=np.float32)
        noise.append(Dense(own.reshape(len(moves), *tensor.shape)))
        first = last
    return noise


def search(
    layout: ParameterLayout,
    weights: Float32Array,
    slots: Mapping[str, Float32Array],
    update: Update,
    *,
    seed: int,
    threads: int,
) -> None:
    """Takes the step of an optimizer that searches, in place: members' signs are made again.

    Raises:
        ValueError: the Update does not tell members apart, or the weights hold no factor.
    """
    if update.is_summed or not layout.is_correlated:
        found = "a sum" if update.is_summed else "a model without a factor"
        raise ValueError(f"optimizer: expected utilities of members whose noise is correlated, got {found}")
    perturbation = Perturbation(1.0, 0, antithetic=update.antithetic)
    trials = [Trials(update.step, perturbation, update.group_size, first, count) for first, count in update.spans]
    intervals, scales = layout.intervals(layout.searched), _scales(layout)
    signs = [scales[:0].reshape(0, scales.size), *(_signs(layout, some, seed=seed, threads=threads) for some in trials)]
    position, path = (np.concatenate([array[interval] for interval in intervals]) for array in (weights, slots["path"]))
    update.optimizer.search(
        SearchStep(
            position=position,
            factor=_factor(layout, weights),
            path=path,
            scales=scales,
            signs=np.concatenate(signs).astype(np.int64),
            utilities=update.utilities.astype(np.int64),
        )
    )
    first = 0
    for interval in intervals:
        last = first + interval.stop - interval.start
        weights[interval], slots["path"][interval] = position[first:last], path[first:last]
        first = last


def _signs(layout: ParameterLayout, trials: Trials, *, seed: int, threads: int) -> Float32Array:
    """The members' signs [members, n], one for each of the n parameters that are searched."""
    plain = msgspec.structs.replace(trials.perturbation, sigma=1.0, rank=0)
    trials = msgspec.structs.replace(trials, perturbation=plain)
    noise = member_noise(layout.searched, trials, seed=seed, threads=threads)
    flat = [entry.noise.reshape(trials.n_members, -1) for entry in noise if isinstance(entry, Dense)]
    signs: Float32Array = np.sign(np.concatenate(flat, axis=1))
    return signs


def _scales(layout: ParameterLayout) -> Float32Array:
    """The relative scales [n] of the parameters that are searched."""
    return np.concatenate([np.full(tensor.size, tensor.scale, dtype=np.float32) for tensor in layout.searched.tensors])


def _factor(layout: ParameterLayout, weights: Float32Array) -> Float32Array:
    """The factor [n, n], as a view of the weights."""
    n = layout.searched.size
    return weights[layout.statistics["factor"]].reshape(n, n)

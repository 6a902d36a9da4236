"""Correlated noise: a matrix, the factor, turns a member's numbers into its move, so that noise can learn the shape of
a function's valley.

The weights hold the factor in a tensor of their own, which the optimizer adapts: a matrix [n, n] for the n parameters
that are searched, or a vector [n], which stands for the matrix with this diagonal.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import Dense, TensorNoise
from fedlearn.es.optimizers import SearchStep
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update

SIGNS = 4
"""Signs whose sum, halved, is a number of a member: whole, of variance 1, and spread nearly as normal ones are. Signs
alone have one length, so that losses would not tell whether the least one is in the members' middle."""

BLOCK_NUMBERS = 2**20
"""The most numbers of members that a step makes again at once."""


def correlated_noise(layout: ParameterLayout, weights: Float32Array, trials: Trials, *, seed: int) -> list[TensorNoise]:
    """The noise of the trials' members, one entry for each tensor, by the factor that the weights hold.

    Raises:
        ValueError: the layout's factor has another shape than [n, n] or [n] for n parameters that are searched.
    """
    scales, factor = _scales(layout), _factor(layout, weights)
    numbers = _numbers(layout, trials, seed=seed, threads=1)
    moves = numbers * factor if factor.ndim == 1 else numbers @ factor.T
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
    """Takes the step of an optimizer that searches, in place: members' numbers are made again.

    Raises:
        ValueError: the Update does not tell members apart, or the weights hold no factor, or one of another shape than
            [n, n] or [n] for n parameters that are searched.
    """
    if update.is_summed or not layout.is_correlated:
        found = "a sum" if update.is_summed else "a model without a factor"
        raise ValueError(f"optimizer: expected utilities of members whose noise is correlated, got {found}")
    intervals, scales = layout.intervals(layout.searched), _scales(layout)
    position, path = (np.concatenate([array[interval] for interval in intervals]) for array in (weights, slots["path"]))
    update.optimizer.search(
        SearchStep(
            position=position,
            factor=_factor(layout, weights),
            path=path,
            scales=scales,
            numbers=_blocks(layout, update, seed=seed, threads=threads),
            utilities=update.utilities.astype(np.int64),
        )
    )
    _place(weights, intervals, position)
    _place(slots["path"], intervals, path)


def _blocks(layout: ParameterLayout, update: Update, *, seed: int, threads: int) -> Iterator[NDArray[np.int64]]:
    """The whole numbers of an Update's members, in their order, [some members, n] each."""
    perturbation = Perturbation(1.0, 0, antithetic=update.antithetic)
    at_once = 2 * max(BLOCK_NUMBERS // (2 * max(layout.searched.size, 1)), 1)  # whole antithetic pairs
    for first, count in update.spans:
        for begin in range(first, first + count, at_once):
            size = min(at_once, first + count - begin)
            trials = Trials(update.step, perturbation, update.group_size, begin, size)
            yield _numbers(layout, trials, seed=seed, threads=threads).astype(np.int64)


def go_elsewhere(layout: ParameterLayout, weights: Float32Array, update: Update, *, seed: int) -> None:
    """Moves first weights, in place, to where a member of this step, with sigma alone, would be.

    The numbers of another step are others, so a search that begins there does not know of them.
    """
    group = Trials(update.step, Perturbation(1.0, 0), update.group_size, 0, update.group_size)
    numbers = _numbers(layout, group, seed=seed, threads=1)[0]
    intervals = layout.intervals(layout.searched)
    position = np.concatenate([weights[interval] for interval in intervals])
    _place(weights, intervals, position + np.float32(update.optimizer.learning_rate) * _scales(layout) * numbers)


def _place(array: Float32Array, intervals: Sequence[slice], values: Float32Array) -> None:
    """Puts values, one after another, into these intervals of an array."""
    first = 0
    for interval in intervals:
        last = first + interval.stop - interval.start
        array[interval] = values[first:last]
        first = last


def _numbers(layout: ParameterLayout, trials: Trials, *, seed: int, threads: int) -> Float32Array:
    """The members' whole numbers [members, n], one for each of the n parameters that are searched."""
    searched = layout.searched
    factors = [
        (number, 2 * factor, tensor.size)  # those of even number change sign in antithetic pairs
        for factor in range(SIGNS)
        for number, tensor in zip(searched.numbers, searched.tensors, strict=True)
    ]
    halves = es_core.member_signs(
        seed,
        trials.step,
        trials.first_member,
        trials.n_members,
        np.array(factors, dtype=np.int64),
        np.full(len(factors), 0.5, dtype=np.float32),
        np.zeros(len(factors), dtype=np.int64),
        antithetic=trials.perturbation.antithetic,
        threads=threads,
    )
    numbers: Float32Array = halves.reshape(trials.n_members, SIGNS, searched.size).sum(axis=1)
    return numbers


def _scales(layout: ParameterLayout) -> Float32Array:
    """The relative scales [n] of the parameters that are searched."""
    return np.concatenate([np.full(tensor.size, tensor.scale, dtype=np.float32) for tensor in layout.searched.tensors])


def _factor(layout: ParameterLayout, weights: Float32Array) -> Float32Array:
    """The factor [n, n], or its diagonal [n], as a view of the weights."""
    n, shape = layout.searched.size, layout.factor_shape
    if shape not in ((n, n), (n,)):
        raise ValueError(f"factor: expected {[n, n]}, or a diagonal {[n]}, for {n} searched numbers, got {list(shape)}")
    return weights[layout.statistics["factor"]].reshape(shape)

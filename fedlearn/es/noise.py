"""The noise of members as arrays, for objectives in Python; the addresses are those of docs/design/arithmetic.md."""

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials


class LowRank(msgspec.Struct, frozen=True, eq=False):
    """Noise on a matrix [rows, columns]; a member's noise is the sum over k of rows[:, :, k] columns[:, :, k]^T."""

    rows: Float32Array
    """The left factors [members, rows, rank], already multiplied by sigma."""
    columns: Float32Array
    """The right factors [members, columns, rank], which are plain signs."""


class Dense(msgspec.Struct, frozen=True, eq=False):
    """Noise with one sign for each element."""

    noise: Float32Array
    """The noise [members, *shape of the tensor], already multiplied by sigma."""


TensorNoise = LowRank | Dense


def member_noise(layout: ParameterLayout, trials: Trials, *, seed: int, threads: int = 1) -> list[TensorNoise]:
    """The noise of the trials' members, one entry per tensor: signs times sigma, relative scale and 1/sqrt(rank).

    All entries are views of one array. A part of a model has the noise that its tensors and rows have in the whole.
    """
    perturbation = trials.perturbation
    factors, scales, first_signs = _factors(layout, perturbation)
    signs = es_core.member_signs(
        seed,
        trials.step,
        trials.first_member,
        trials.n_members,
        factors,
        scales,
        first_signs,
        antithetic=perturbation.antithetic,
        threads=threads,
    )
    noise: list[TensorNoise] = []
    first = 0
    for tensor in layout.tensors:
        rank = perturbation.rank if tensor.is_matrix else 0
        if rank > 0:
            n_rows, n_columns = tensor.sides
            middle, last = first + rank * n_rows, first + rank * (n_rows + n_columns)
            noise.append(LowRank(_vectors(signs[:, first:middle], rank), _vectors(signs[:, middle:last], rank)))
        else:
            last = first + tensor.size
            noise.append(Dense(signs[:, first:last].reshape(len(signs), *tensor.shape)))
        first = last
    return noise


def perturbed(tensor: Float32Array, noise: TensorNoise, member: int) -> Float32Array:
    """The tensor of one member, which is `tensor` plus the member's noise."""
    if isinstance(noise, Dense):
        addition: Float32Array = noise.noise[member]
    else:
        addition = (noise.rows[member] @ noise.columns[member].T).reshape(tensor.shape)
    return np.asarray(tensor + addition, dtype=np.float32)


def _factors(
    layout: ParameterLayout, perturbation: Perturbation
) -> tuple[NDArray[np.int64], Float32Array, NDArray[np.int64]]:
    """The factors in the order of the noise, as rows (tensor, factor, length), with scale and first sign of each."""
    factors: list[tuple[int, int, int]] = []
    scales: list[np.float32] = []
    first_signs: list[int] = []
    rank = perturbation.rank
    for i, tensor in zip(layout.numbers, layout.tensors, strict=True):
        sigma, first_sign = np.float32(perturbation.sigma * tensor.scale), tensor.first_sign(rank)
        if tensor.is_matrix and rank > 0:
            n_rows, n_columns = tensor.sides
            factors += [(i, 2 * k, n_rows) for k in range(rank)] + [(i, 2 * k + 1, n_columns) for k in range(rank)]
            scales += [np.float32(sigma / rank**0.5)] * rank + [np.float32(1.0)] * rank
            first_signs += [first_sign] * rank + [0] * rank
        else:
            factors.append((i, 0, tensor.size))
            scales.append(sigma)
            first_signs.append(first_sign)
    table = np.array(factors, dtype=np.int64).reshape(-1, 3)
    return table, np.array(scales, dtype=np.float32), np.array(first_signs, dtype=np.int64)


def _vectors(signs: Float32Array, rank: int) -> Float32Array:
    """Factors [members, length, rank] from `rank` factors one after another, [members, rank * length]."""
    return signs.reshape(len(signs), rank, signs.shape[1] // rank).swapaxes(1, 2)

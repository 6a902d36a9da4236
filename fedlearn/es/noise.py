"""The noise of members as arrays, for objectives in Python; the addresses are those of docs/design.md."""

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials


class LowRank(msgspec.Struct, frozen=True, eq=False):
    """Noise on a matrix [rows, columns]: that of a member is the sum over k of rows[:, :, k] columns[:, :, k]^T."""

    rows: Float32Array
    """[members, rows, rank], sigma included."""
    columns: Float32Array
    """[members, columns, rank], plain signs."""


class Dense(msgspec.Struct, frozen=True, eq=False):
    """Noise with one sign for each element."""

    noise: Float32Array
    """[members, *shape of the tensor], sigma included."""


TensorNoise = LowRank | Dense


def member_noise(layout: ParameterLayout, trials: Trials, *, seed: int, threads: int = 1) -> list[TensorNoise]:
    """The noise of the trials' members, one entry per tensor: signs times sigma, relative scale and 1/sqrt(rank).

    All entries are views of one array.
    """
    perturbation = trials.perturbation
    factors, scales = _factors(layout, perturbation)
    signs = es_core.member_signs(
        seed,
        trials.step,
        trials.first_member,
        trials.n_members,
        factors,
        scales,
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
    """The tensor of one member: with its noise added."""
    if isinstance(noise, Dense):
        addition: Float32Array = noise.noise[member]
    else:
        addition = (noise.rows[member] @ noise.columns[member].T).reshape(tensor.shape)
    return np.asarray(tensor + addition, dtype=np.float32)


def _factors(layout: ParameterLayout, perturbation: Perturbation) -> tuple[NDArray[np.int64], Float32Array]:
    """Rows (tensor, factor, length) of the factors in the order of the noise, and the scale of each."""
    factors, scales = [], []
    rank = perturbation.rank
    for i, tensor in enumerate(layout.tensors):
        sigma = np.float32(perturbation.sigma * tensor.scale)
        if tensor.is_matrix and rank > 0:
            n_rows, n_columns = tensor.sides
            factors += [(i, 2 * k, n_rows) for k in range(rank)] + [(i, 2 * k + 1, n_columns) for k in range(rank)]
            scales += [np.float32(sigma / rank**0.5)] * rank + [np.float32(1.0)] * rank
        else:
            factors.append((i, 0, tensor.size))
            scales.append(sigma)
    return np.array(factors, dtype=np.int64), np.array(scales, dtype=np.float32)


def _vectors(signs: Float32Array, rank: int) -> Float32Array:
    """[members, length, rank] from `rank` factors one after another, [members, rank * length]."""
    return signs.reshape(len(signs), rank, signs.shape[1] // rank).swapaxes(1, 2)

"""Golden noise, sums and steps: every machine that computes as this version does gets the same bytes."""

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

import es_core
from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import Dense, member_noise
from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, UInt8Array, genesis
from fedlearn.es.shaping import normalized
from fedlearn.es.sums.estimate import decode_estimate, encode_estimate, encode_exactly
from fedlearn.es.trials import Trials
from fedlearn.es.update import Int8Array, Update

GOLDEN_NOISE = bytes.fromhex("f55fa581d9495ec7")
GOLDEN_SUM = bytes.fromhex("7220b6876445be12")
GOLDEN_STEP = bytes.fromhex("76b95603a3e728a1")
"""The digest that a Proof holds as well, so that a server recognises the arithmetic of another version."""

N_STEPS = 6
_SEED = 0x9E3779B97F4A7C15
_GROUP_SIZE = 6
_MASKED_ROWS = 33
_LAYOUT = ParameterLayout(
    (
        TensorSpec("embedding", (_MASKED_ROWS, 17), scale=3.0, mask_column=0),
        TensorSpec("bias", (131,)),
        TensorSpec("weight", (64, 48)),
    )
)


def golden_words(stream: int, count: int) -> NDArray[np.uint32]:
    """Random words [count], the same everywhere."""
    words: NDArray[np.uint32] = es_core.random_words(_SEED, 0, stream, 1, count)[0]
    return words


def golden_noise() -> bytes:
    """Hash (8 bytes) of the noise, of rank 2, of two antithetic pairs on either side of member 2^33."""
    perturbation = Perturbation(sigma=0.1, rank=2, antithetic=True)
    trials = Trials(step=7, perturbation=perturbation, group_size=2, first_member=2**33 - 2, n_members=4)
    hashed = blake3()
    for tensor in member_noise(_LAYOUT, trials, seed=_SEED):
        for part in (tensor.noise,) if isinstance(tensor, Dense) else (tensor.rows, tensor.columns):
            hashed.update(part.astype("<f4").tobytes())
    return hashed.digest(DIGEST_BYTES)


def golden_step() -> bytes:
    """The digest of a replica after N_STEPS steps with each optimizer, three ranks, and with and without pairs."""
    weights = (golden_words(0, _LAYOUT.size) & 0xBFFFFFFF).view(np.float32)
    start = genesis(_LAYOUT, weights, keeps_start=True, threads=1)
    replica = Replica(_LAYOUT, start, seed=_SEED, row_masks=_row_masks, threads=1)
    for step in range(N_STEPS):
        replica.apply(_update(step))
    return replica.digest


def golden_sum() -> bytes:
    """Hash (8 bytes) of a sum with integers of all sizes, rounded and exact, encoded and decoded."""
    sums = golden_words(20, _LAYOUT.size).view(np.int32) >> (np.arange(_LAYOUT.size) // 17 % 32).astype(np.int32)
    hashed = blake3()
    for encode in (encode_estimate, encode_exactly):
        coded = encode(_LAYOUT, sums)
        for part in (coded.numbers, coded.shifts, decode_estimate(_LAYOUT, coded).astype("<i4")):
            hashed.update(part.tobytes())
    return hashed.digest(DIGEST_BYTES)


def _update(step: int) -> Update:
    is_odd = step % 2 == 1
    return Update(
        step=step,
        block=b"",
        spans=((6 * step, 12), (6 * (2**33 + step), 18)),
        utilities=_utilities(step),
        rank=(1, 2, 0)[step % 3],
        group_size=_GROUP_SIZE,
        gradient_scale=-1e-4,
        optimizer=Adam(0.01) if step < N_STEPS // 2 else Sgd(0.1, 0.9),
        antithetic=is_odd,
        weight_decay=0.1,
        decay_towards="start" if is_odd else "zero",
        elapsed_s=0.0,
        shaping_scale=0.4,
    )


def _utilities(step: int) -> Int8Array:
    losses: Float32Array = (0x40000000 | golden_words(1 + step, 30) >> 9).astype(np.uint32).view(np.float32)
    return normalized(losses, _GROUP_SIZE, 0.4)


def _row_masks(update: Update) -> UInt8Array:
    n_groups = update.n_members // update.group_size
    words = golden_words(1 + N_STEPS + update.step, n_groups * _MASKED_ROWS)
    return (words & 1).astype(np.uint8).reshape(n_groups, _MASKED_ROWS)

"""The digests of golden.cpp through the core's Python face, and that of a journal replayed.

As a script, for an emulator: `golden_face.py JOURNAL THREADS` prints `name: digest` lines, the golden trial's too.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.golden import golden_noise, golden_step, golden_sum
from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.update import Update
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.windows import WindowShape

SEED = 0x9E3779B97F4A7C15
STEP = 7
N_UPDATES = 200
BETA1, BETA2 = 0.9, 0.999
DECAY = 0.003


def digest_of(*arrays: NDArray[Any]) -> str:
    """FNV-1a, 64 bits, over the bytes of little-endian arrays."""
    value = 0xCBF29CE484222325
    for array in arrays:
        for byte in array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes():
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def digests(core: Any, *, threads: int) -> dict[str, str]:  # noqa: ANN401  a module, or what stands for it
    """Everything that golden.cpp prints; `core` has the functions of es_core."""
    n_optimized = 1003
    weights = (random_words(4, n_optimized) & 0xBFFFFFFF).view(np.float32)

    def adam(decay: float) -> TakeStep:
        return lambda arrays, estimate, scale, corrections: core.adam_step(
            *arrays,
            estimate,
            gradient_scale=scale,
            learning_rate=0.006,
            beta1=BETA1,
            beta2=BETA2,
            epsilon=1e-8,
            correction1=corrections[0],
            correction2=corrections[1],
            decay=decay,
        )

    def sgd(decay: float) -> TakeStep:
        return lambda arrays, estimate, scale, _: core.sgd_step(
            *arrays[:2], estimate, gradient_scale=scale, learning_rate=0.3, momentum=BETA1, decay=decay
        )

    return {
        "random_words": digest_of(random_words(2**40 + 5, 1001)),
        "signs": digest_of(core.sign_noise(SEED, STEP, 2**33 + 3, 5, 1, 129, 1001)),
        "member_signs": digest_of(_member_signs(core, threads)),
        "utilities": _utilities(core),
        **_gradients(core, threads),
        "adam": digest_of(*_fifty_steps(adam(0.0), weights)),
        "adam_with_decay": digest_of(*_fifty_steps(adam(DECAY), weights)),
        "sgd": digest_of(*_fifty_steps(sgd(0.0), weights)),
        "sgd_with_decay": digest_of(*_fifty_steps(sgd(DECAY), weights)),
        "pull_towards": digest_of(*_pulled(core)),
    }


def random_words(stream: int, count: int) -> NDArray[np.uint32]:
    words: NDArray[np.uint32] = es_core.random_words(SEED, STEP, stream, 1, count)[0]
    return words


def _signed_bytes(words: NDArray[np.uint32]) -> NDArray[np.int8]:
    return ((words % 255).astype(np.int32) - 127).astype(np.int8)


def _member_signs(core: Any, threads: int) -> NDArray[np.float32]:  # noqa: ANN401
    factors = np.array([(0, 0, 33), (0, 1, 129), (65535, 4, 128), (7, 0, 5000)], dtype=np.int64)
    # 0.3, 1.0, -1e-42 and 0.0 as bits: under odd arithmetic NumPy would round other numbers.
    scales = np.array([0x3E99999A, 0x3F800000, 0x800002CA, 0], dtype=np.uint32).view(np.float32)
    signs: NDArray[np.float32] = core.member_signs(
        SEED, STEP, 4294967291, 9, factors, scales, antithetic=True, threads=threads
    )
    return signs


def _utilities(core: Any) -> str:  # noqa: ANN401
    losses = (0x40000000 | random_words(1, 490) >> 9).astype(np.uint32).view(np.float32)
    losses[20], losses[40] = np.nan, np.inf
    return digest_of(core.normalized_utilities(losses, 7, 0.4, 32.0))


def _pulled(core: Any) -> Iterator[NDArray[np.float32]]:  # noqa: ANN401
    weights, start = ((random_words(stream, 1003) & 0xBFFFFFFF).view(np.float32) for stream in (10, 11))
    for share in (1e-3, 0.3, 1e-9, 1.0):
        core.pull_towards(weights, start, share)
        yield weights.copy()


def _table(rank: int, *, is_masked: bool) -> NDArray[np.int64]:
    rows, offset = [], 0
    for n_rows, n_columns, tensor_rank, mask_column in (
        (33, 17, rank, 0),
        (1, 131, 0, -1),
        (5, 70, rank, -1),
        (64, 48, rank, -1),
        (1, 19, 0, 33),
    ):
        rows.append((offset, n_rows, n_columns, tensor_rank, mask_column if is_masked else -1))
        offset += n_rows * n_columns
    return np.array(rows, dtype=np.int64)


def _gradients(core: Any, threads: int) -> dict[str, str]:  # noqa: ANN401
    def estimate(table: NDArray[np.int64], **population: object) -> str:
        n_parameters = int(table[-1, 0] + table[-1, 2])
        return digest_of(
            core.estimate_gradient(table, n_parameters, seed=SEED, step=STEP, threads=threads, **population)
        )

    one: dict[str, object] = {"group_size": 1, "spans": [(2**33 + 3, 1)], "utilities": np.ones(1, dtype=np.int8)}
    population: dict[str, object] = {
        "group_size": 3,
        "spans": [(0, 600), (4294967292, 9), (3000000000000, 258)],
        "utilities": _signed_bytes(random_words(2, 867)),
        "row_masks": (random_words(3, 289 * 34) & 1).astype(np.uint8).reshape(289, 34),
    }
    pairs: dict[str, object] = {
        "group_size": 6,
        "spans": [(0, 600), (4294967292, 12), (3000000000000, 258)],
        "utilities": _signed_bytes(random_words(8, 870)),
        "row_masks": (random_words(9, 145 * 34) & 1).astype(np.uint8).reshape(145, 34),
        "antithetic": True,
    }
    return {
        "noise": estimate(_table(0, is_masked=False), row_masks=None, **one),
        "gradient_of_full_rank": estimate(_table(0, is_masked=True), **population),
        "gradient_of_rank_1": estimate(_table(1, is_masked=True), **population),
        "gradient_of_rank_2": estimate(_table(2, is_masked=True), **population),
        "gradient_of_antithetic_pairs": estimate(_table(2, is_masked=True), **pairs),
    }


TakeStep = Callable[[list[Any], NDArray[np.int32], float, tuple[float, float]], None]


def _fifty_steps(take_step: TakeStep, weights: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Weights and moments after them, for an ordinary scale and for two that make moments subnormal."""
    shifts = np.arange(weights.size, dtype=np.int32) % 32
    for scale in (-3.7e-7, 1e-20, 1e-41):
        arrays = [weights.copy(), np.zeros_like(weights), np.zeros_like(weights)]
        beta1_power = beta2_power = 1.0
        for step in range(50):
            estimate = random_words(100 + step, weights.size).view(np.int32) >> shifts
            beta1_power, beta2_power = beta1_power * BETA1, beta2_power * BETA2
            take_step(arrays, estimate, scale, (1.0 / (1.0 - beta1_power), 1.0 / (1.0 - beta2_power)))
        yield from arrays


def training_updates() -> Iterator[Update]:
    """A run's journal: members that never answered, every rank, steps that nobody came to, both optimizers.

    While Adam trains, gradients are so small that the second moments are subnormal.
    """
    for step in range(N_UPDATES):
        is_adam = step < 150
        words = random_words(1000 + step, 400)
        sizes = (words[:3] % 8).tolist() if step % 20 != 19 else []
        spans = tuple((6 * (i * 2**32 + step), 6 * size) for i, size in enumerate(sizes) if size > 0)
        yield Update(
            step=step,
            block=bytes(16),
            spans=spans,
            utilities=_signed_bytes(words[3 : 3 + sum(count for _, count in spans)]),
            rank=step % 4,
            group_size=6,
            gradient_scale=-3e-22 if is_adam else -1e-4,
            optimizer=Adam(0.01 * 0.99**step, BETA1, BETA2, 1e-20) if is_adam else Sgd(0.01 * 0.99**step, BETA1),
            antithetic=False,
            weight_decay=0.0,
            decay_towards="zero",
            elapsed_s=0.0,
            shaping_scale=0.1,
        )


def replay(journal: Path, *, threads: int) -> str:
    """Digest of the replica after every Update of the journal."""
    objective = RnnObjective(
        seed=SEED, vocab_size=11, hidden_size=9, n_layers=2, window=WindowShape(2, 3, 5), embedding_scale=8.0
    )
    block = (random_words(5, 300) % 11).astype(np.uint16)
    replica = Replica(
        objective.layout,
        genesis(objective.layout, (random_words(6, objective.layout.size) & 0xBFFFFFFF).view(np.float32)),
        seed=SEED,
        row_masks=lambda update: objective.row_masks(update, {"tokens": block}),
        threads=threads,
    )
    for update in read_journal(journal):
        replica.apply(update)
    return replica.digest.hex()


if __name__ == "__main__":
    n_threads = int(sys.argv[2])
    printed = {"isa": es_core.current_isa()} | digests(es_core, threads=n_threads)
    printed["journal"] = replay(Path(sys.argv[1]), threads=n_threads)
    trial = {"golden_noise": golden_noise(), "golden_sum": golden_sum(), "golden_step": golden_step()}
    printed |= {name: digest.hex() for name, digest in trial.items()}
    for name, value in printed.items():
        print(f"{name}: {value}")

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.es.estimate import encode_estimate
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.replica import OptimizerState, Replica
from fedlearn.es.update import Update

OddArithmetic = Callable[[], AbstractContextManager[None]]
Optimizer = Literal["adam", "sgd"]

LAYOUT = ParameterLayout(
    (
        TensorSpec("matrix", (5, 3), scale=10.0, mask_column=0),
        TensorSpec("vector", (7,)),
        TensorSpec("square", (4, 4)),
    )
)
SPANS = ((0, 8), (20, 4))


def masks_of(update: Update) -> NDArray[np.uint8]:
    """Row r of the matrix takes part in group g unless r + g is a multiple of 3."""
    groups = [
        first // update.group_size + i for first, count in update.spans for i in range(count // update.group_size)
    ]
    rows = np.array(groups)[:, np.newaxis] + np.arange(5)
    mask: NDArray[np.uint8] = (rows % 3 != 0).astype(np.uint8)
    return mask


def new_replica(*, step: int = 0) -> Replica:
    zeros = np.zeros(LAYOUT.size, dtype=np.float32)
    return Replica(
        LAYOUT,
        seed=99,
        step=step,
        weights=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        optimizer=OptimizerState(zeros, zeros),
        row_masks=masks_of,
    )


def update_of(step: int, *, optimizer: Optimizer = "adam", rank: int = 2) -> Update:
    n_members = sum(count for _, count in SPANS)
    return Update(
        step=step,
        block=bytes(16),
        spans=SPANS,
        utilities=np.random.default_rng(step).integers(-127, 128, n_members).astype(np.int8),
        rank=rank,
        group_size=4,
        gradient_scale=-0.001,
        optimizer=optimizer,
        learning_rate=0.01,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-8,
        antithetic=False,
        weight_decay=0.0,
        elapsed_s=0.0,
        shaping_scale=0.1,
    )


def replay(n_steps: int, *, optimizer: Optimizer = "adam", threads: int = 1) -> Replica:
    replica = new_replica()
    for step in range(n_steps):
        replica.apply(update_of(step, optimizer=optimizer), threads=threads)
    return replica


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("optimizer", "digest"), [("adam", "6490bfd9e09d90cb"), ("sgd", "7c1a184aefd9b167")])
def test_twenty_updates_have_the_known_digest(optimizer: Optimizer, digest: str, threads: int) -> None:
    assert replay(20, optimizer=optimizer, threads=threads).digest.hex() == digest


def test_a_new_replica_has_the_known_digest() -> None:
    assert new_replica().digest.hex() == "a9df8a7aaa61c41f"


def test_the_digest_covers_weights_and_the_whole_optimizer_state() -> None:
    digests = set()
    for change in range(6):
        replica = new_replica()
        state = replica.optimizer
        if change < 3:
            (replica.weights, state.first_moment, state.second_moment)[change][-1] += 1
        elif change < 5:
            setattr(state, ("beta1_power", "beta2_power")[change - 3], 0.5)
        digests.add(replica.digest)
    assert len(digests) == 6


def test_an_update_of_another_step_is_refused_and_changes_nothing() -> None:
    replica = new_replica(step=5)
    before = replica.digest
    for step in (4, 6):
        with pytest.raises(ValueError, match=f"step: expected 5, got {step}; the replica must resync"):
            replica.apply(update_of(step))
    assert (replica.step, replica.digest) == (5, before)


def test_a_step_is_counted() -> None:
    assert replay(2).step == 2


@pytest.mark.parametrize("broken", ["weights", "first_moment", "second_moment"])
@pytest.mark.parametrize("wrong", [np.zeros(37, dtype=np.float32), np.zeros(38)])
def test_arrays_of_another_model_are_refused(broken: str, wrong: NDArray[np.float32]) -> None:
    arrays = dict.fromkeys(("weights", "first_moment", "second_moment"), np.zeros(38, dtype=np.float32))
    arrays[broken] = wrong
    with pytest.raises(ValueError, match=rf"{broken}: expected float32 \[38\], got .* for another model"):
        Replica(
            LAYOUT,
            seed=1,
            step=0,
            weights=arrays["weights"],
            optimizer=OptimizerState(arrays["first_moment"], arrays["second_moment"]),
            row_masks=masks_of,
        )


def test_a_replica_owns_its_arrays() -> None:
    weights, first, second = (np.zeros(LAYOUT.size, dtype=np.float32) for _ in range(3))
    replica = Replica(
        LAYOUT, seed=1, step=0, weights=weights, optimizer=OptimizerState(first, second), row_masks=masks_of
    )
    replica.apply(update_of(0))
    assert not weights.any()
    assert not first.any()
    assert not second.any()


def test_spans_may_be_cut_anywhere_between_groups() -> None:
    whole, cut = new_replica(), new_replica()
    update = update_of(0)
    whole.apply(update)
    cut.apply(msgspec.structs.replace(update, spans=((0, 4), (4, 4), (20, 4))))
    assert cut.digest == whole.digest


def test_spans_may_come_in_any_order_with_their_utilities() -> None:
    whole, turned = new_replica(), new_replica()
    update = update_of(0)
    whole.apply(update)
    turned.apply(msgspec.structs.replace(update, spans=SPANS[::-1], utilities=np.roll(update.utilities, 4)))
    assert turned.digest == whole.digest


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_plain_sgd_steps_along_the_scaled_sum_of_utility_times_noise(rank: int) -> None:
    replica = new_replica()
    before = replica.weights.copy()
    update = msgspec.structs.replace(update_of(0, optimizer="sgd", rank=rank), beta1=0.0)
    replica.apply(update)
    sums = LAYOUT.split(
        es_core.estimate_gradient(
            LAYOUT.table(rank),
            LAYOUT.size,
            seed=99,
            step=0,
            group_size=4,
            spans=list(SPANS),
            utilities=update.utilities,
            row_masks=masks_of(update),
            naive=True,
        ).astype(np.float32)
    )
    moved = LAYOUT.split((replica.weights - before) / (update.gradient_scale * update.learning_rate))
    # A sum of `rank` products has the variance of one element when it is divided by its root.
    root = max(rank, 1) ** 0.5
    np.testing.assert_allclose(moved["matrix"], -10.0 * sums["matrix"] / root, rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(moved["vector"], -sums["vector"], rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(moved["square"], -sums["square"] / root, rtol=1e-2, atol=0.1)


def test_adam_first_moves_each_weight_by_its_learning_rate_against_the_gradient() -> None:
    replica = new_replica()
    before = LAYOUT.split(replica.weights.copy())
    replica.apply(update_of(0))
    after, gradient = LAYOUT.split(replica.weights), LAYOUT.split(replica.optimizer.first_moment)
    for name, learning_rate in (("matrix", 0.1), ("vector", 0.01), ("square", 0.01)):
        np.testing.assert_allclose(
            after[name] - before[name], -learning_rate * np.sign(gradient[name]), rtol=1e-3, atol=1e-7
        )


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weight_decay_shrinks_matrices_by_the_unscaled_learning_rate(optimizer: Optimizer) -> None:
    replica = new_replica()
    before = LAYOUT.split(replica.weights.copy())
    still = msgspec.structs.replace(
        update_of(0, optimizer=optimizer), spans=(), utilities=np.zeros(0, dtype=np.int8), weight_decay=5.0
    )
    replica.apply(still)
    after = LAYOUT.split(replica.weights)
    for name, kept in (("matrix", 0.95), ("vector", 1.0), ("square", 0.95)):
        np.testing.assert_array_equal(after[name], before[name] * np.float32(kept))


def test_equal_losses_of_an_antithetic_pair_cancel() -> None:
    replica = new_replica()
    before = replica.weights.copy()
    update = update_of(0, optimizer="sgd")
    equal = msgspec.structs.replace(update, antithetic=True, utilities=np.repeat(update.utilities[::2], 2))
    replica.apply(equal)
    np.testing.assert_array_equal(replica.weights, before)
    replica.apply(msgspec.structs.replace(equal, step=1, antithetic=False))
    assert not np.array_equal(replica.weights, before)


def test_an_update_without_members_moves_the_optimizer_on() -> None:
    replica = replay(1)
    weights, moment = replica.weights.copy(), replica.optimizer.first_moment.copy()
    empty = msgspec.structs.replace(update_of(1), spans=(), utilities=np.zeros(0, dtype=np.int8))
    replica.apply(empty)
    assert replica.step == 2
    assert not np.array_equal(replica.weights, weights)
    np.testing.assert_allclose(replica.optimizer.first_moment, 0.9 * moment, rtol=1e-6)


def test_a_restored_replica_goes_on_to_the_bit() -> None:
    straight, first_half = replay(6), replay(3)
    restored = Replica(
        LAYOUT,
        seed=99,
        step=3,
        weights=first_half.weights,
        optimizer=first_half.optimizer,
        row_masks=masks_of,
    )
    for step in range(3, 6):
        restored.apply(update_of(step))
    assert restored.digest == straight.digest


@pytest.mark.parametrize("odd_arithmetic", ["flush-to-zero"], indirect=True)
def test_bits_do_not_depend_on_flush_to_zero(odd_arithmetic: OddArithmetic) -> None:
    usual, odd = replay(3), replay(3)
    for replica in (usual, odd):
        replica.optimizer.beta1_power = 2.0**-1020  # as after a thousand steps at 0.5: subnormal numbers are near
    updates = [msgspec.structs.replace(update_of(step), beta1=0.5) for step in range(3, 9)]
    for update in updates:
        usual.apply(update)
    with odd_arithmetic():
        for update in updates:
            odd.apply(update)
    assert odd.digest == usual.digest


def test_a_summed_update_takes_its_estimate_as_it_is() -> None:
    replica, twin = new_replica(), new_replica()
    update = update_of(0, rank=1, optimizer="sgd")
    # So small that a byte holds every number of the estimate.
    update = msgspec.structs.replace(update, utilities=np.sign(update.utilities))
    estimate = es_core.estimate_gradient(
        LAYOUT.table(1),
        LAYOUT.size,
        seed=99,
        step=0,
        group_size=4,
        spans=list(SPANS),
        utilities=update.utilities,
        row_masks=masks_of(update),
    )
    coded = encode_estimate(LAYOUT, estimate)
    twin.apply(update)
    replica.apply(msgspec.structs.replace(update, utilities=np.zeros(0, dtype=np.int8), estimate=coded))
    assert replica.digest == twin.digest != new_replica().digest


def test_estimate_of_another_model_is_refused() -> None:
    replica = new_replica()
    before = replica.digest
    other = ParameterLayout((TensorSpec("vector", (5,)),))
    wrong = msgspec.structs.replace(update_of(0), estimate=encode_estimate(other, np.ones(5, dtype=np.int32)))
    with pytest.raises(ValueError, match=f"estimate: expected {LAYOUT.size} numbers and 16 shifts, got 5 and 5"):
        replica.apply(wrong)
    assert replica.digest == before

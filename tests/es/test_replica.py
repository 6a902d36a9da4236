from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.es.sums.estimate import encode_estimate, encode_exactly
from tests.es.replicas import (
    ADAM,
    LAYOUT,
    LION,
    MOMENTUM,
    SPANS,
    WEIGHTS,
    masks_of,
    new_replica,
    replay,
    restored,
    update_of,
    without_members,
)

OddArithmetic = Callable[[], AbstractContextManager[None]]


def hash_of(replica: Replica) -> str:
    """Of the bits of weights and slots, whatever the digest's definition."""
    arrays = [replica.weights, *(replica.slots[name] for name in sorted(replica.slots))]
    return blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).hexdigest()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("optimizer", "bits", "digest"),
    [
        (ADAM, "f16160983f3f43bb", "1a944c6f1b6703cb"),
        (MOMENTUM, "0089305d3fedb4a5", "7e294a7df2e9e8b7"),
        (Sgd(0.01, 0.0), "3c8e6aafc3a727ae", "20ddee56913b050d"),
        (LION, "16efcbf2b7509f4f", "d243e8b09802cf0c"),
    ],
)
def test_twenty_updates_have_the_known_bits_and_digest(
    optimizer: AnyOptimizer, bits: str, digest: str, threads: int
) -> None:
    replica = replay(20, optimizer=optimizer, threads=threads)
    assert (hash_of(replica), replica.digest.hex()) == (bits, digest)


def test_a_new_replica_has_the_known_digest() -> None:
    assert new_replica().digest.hex() == "f1ecfb7fdb8d650e"


def test_the_digest_covers_weights_and_the_whole_optimizer_state() -> None:
    digests = set()
    for change in range(6):
        replica = replay(1)
        if change < 3:
            (replica.weights, replica.slots["first_moment"], replica.slots["second_moment"])[change][-1] += 1
        elif change < 5:
            replica.numbers[("beta1_power", "beta2_power")[change - 3]] = 0.5
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
    snapshot = Snapshot(0, bytes(8), arrays.pop("weights"), arrays, {})
    with pytest.raises(ValueError, match=rf"{broken}: expected float32 \[38\], got .* for another model"):
        restored(snapshot)


def test_a_replica_owns_its_arrays() -> None:
    weights, first, second = (np.zeros(LAYOUT.size, dtype=np.float32) for _ in range(3))
    slots = {"first_moment": first, "second_moment": second}
    numbers = {"beta1_power": 0.5, "beta2_power": 0.5}
    replica = restored(Snapshot(0, bytes(8), weights, slots, numbers))
    replica.apply(update_of(0))
    assert not weights.any()
    assert not first.any()
    assert not second.any()
    assert numbers == {"beta1_power": 0.5, "beta2_power": 0.5}


def test_a_snapshot_shares_nothing_with_its_replica() -> None:
    replica = replay(3)
    snapshot, digest = replica.snapshot(), replica.digest
    replica.apply(update_of(3))
    assert (snapshot.step, snapshot.digest) == (3, digest)
    assert restored(snapshot).digest == digest


def test_what_an_optimizer_remembers_appears_with_its_first_step() -> None:
    replica = new_replica()
    assert (replica.slots, replica.numbers) == ({}, {})
    replica.apply(without_members(update_of(0, optimizer=Sgd(0.01, 0.0))))
    assert (replica.slots, replica.numbers) == ({}, {})
    replica.apply(update_of(1, optimizer=MOMENTUM))
    assert set(replica.slots) == {"momentum_buffer"}
    replica.apply(without_members(update_of(2)))
    assert set(replica.slots) == {"momentum_buffer", "first_moment", "second_moment"}
    assert not replica.slots["first_moment"].any()
    assert replica.numbers == {"beta1_power": 0.9, "beta2_power": 0.99}


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


@pytest.mark.parametrize(
    "change",
    [
        {"group_size": 0},
        {"group_size": -4},
        {"spans": ((0, 8), (20, 4), (40, 4))},
        {"spans": ((0, 2**40),)},
        {"spans": ((-12, 12),)},
        {"spans": ((2**63, 12),)},
        {"spans": ((0, 24), (40, -12))},
        {"spans": ((0, 10), (20, 2))},
    ],
    ids=str,
)
def test_members_that_cannot_be_are_refused_before_anything_is_made_for_them(change: dict[str, object]) -> None:
    replica = new_replica()
    before = replica.digest
    with pytest.raises(ValueError, match="spans: expected"):
        replica.apply(msgspec.structs.replace(update_of(0), **change))
    assert (replica.digest, replica.step) == (before, 0)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_plain_sgd_steps_along_the_scaled_sum_of_utility_times_noise(rank: int) -> None:
    replica = new_replica()
    before = replica.weights.copy()
    update = update_of(0, optimizer=Sgd(0.01, 0.0), rank=rank)
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
    moved = LAYOUT.split((replica.weights - before) / (update.gradient_scale * update.optimizer.learning_rate))
    # A sum of `rank` products has the variance of one element when it is divided by its root.
    root = max(rank, 1) ** 0.5
    np.testing.assert_allclose(moved["matrix"], -10.0 * sums["matrix"] / root, rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(moved["vector"], -sums["vector"], rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(moved["square"], -sums["square"] / root, rtol=1e-2, atol=0.1)


def test_adam_first_moves_each_weight_by_its_learning_rate_against_the_gradient() -> None:
    replica = new_replica()
    before = LAYOUT.split(replica.weights.copy())
    replica.apply(update_of(0))
    after, gradient = LAYOUT.split(replica.weights), LAYOUT.split(replica.slots["first_moment"])
    for name, learning_rate in (("matrix", 0.1), ("vector", 0.01), ("square", 0.01)):
        np.testing.assert_allclose(
            after[name] - before[name], -learning_rate * np.sign(gradient[name]), rtol=1e-3, atol=1e-7
        )


def test_equal_losses_of_an_antithetic_pair_cancel() -> None:
    replica = new_replica()
    before = replica.weights.copy()
    update = update_of(0, optimizer=MOMENTUM)
    equal = msgspec.structs.replace(update, antithetic=True, utilities=np.repeat(update.utilities[::2], 2))
    replica.apply(equal)
    np.testing.assert_array_equal(replica.weights, before)
    replica.apply(msgspec.structs.replace(equal, step=1, antithetic=False))
    assert not np.array_equal(replica.weights, before)


def test_an_update_without_members_moves_the_optimizer_on() -> None:
    replica = replay(1)
    weights, moment = replica.weights.copy(), replica.slots["first_moment"].copy()
    replica.apply(without_members(update_of(1)))
    assert replica.step == 2
    assert not np.array_equal(replica.weights, weights)
    np.testing.assert_allclose(replica.slots["first_moment"], 0.9 * moment, rtol=1e-6)


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, Sgd(0.01, 0.0), LION])
def test_a_restored_replica_goes_on_to_the_bit(optimizer: AnyOptimizer) -> None:
    straight, first_half = replay(6, optimizer=optimizer), replay(3, optimizer=optimizer)
    second_half = restored(first_half.snapshot())
    assert (second_half.step, second_half.digest) == (3, first_half.digest)
    for step in range(3, 6):
        second_half.apply(update_of(step, optimizer=optimizer))
    assert second_half.digest == straight.digest


@pytest.mark.parametrize("optimizer", [Adam(0.01, 0.5, 0.5), MOMENTUM, LION])
def test_bits_do_not_depend_on_the_arithmetic_of_the_process(
    optimizer: AnyOptimizer, odd_arithmetic: OddArithmetic
) -> None:
    usual, odd = replay(3, optimizer=optimizer), replay(3, optimizer=optimizer)
    for replica in (usual, odd):
        for name in replica.numbers:
            replica.numbers[name] = 2.0**-1020  # as after a thousand steps at 0.5: subnormal numbers are near
    updates = [
        msgspec.structs.replace(update_of(step, optimizer=optimizer, decay=0.1), gradient_scale=scale)
        for step, scale in zip(range(3, 9), (-0.001, -1e-42) * 3, strict=True)
    ]
    for update in updates:
        usual.apply(update)
    with odd_arithmetic():
        for update in updates:
            odd.apply(update)
    assert odd.digest == usual.digest


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_an_exact_sum_takes_the_step_of_its_utilities(rank: int) -> None:
    replica, twin = new_replica(), new_replica()
    update = update_of(0, rank=rank, optimizer=MOMENTUM)
    twin.apply(update)
    coded = encode_exactly(LAYOUT, replica.replayed(update))
    replica.apply(msgspec.structs.replace(update, utilities=update.utilities[:0], estimate=coded))
    assert replica.digest == twin.digest != new_replica().digest


def test_an_exact_sum_of_zeros_is_a_sum() -> None:
    replica, twin = new_replica(), new_replica()
    coded = encode_exactly(LAYOUT, np.zeros(LAYOUT.size, dtype=np.int32))
    assert coded.numbers.size == 0
    update = update_of(0, optimizer=MOMENTUM)
    summed = msgspec.structs.replace(update, utilities=update.utilities[:0], estimate=coded)
    assert summed.is_summed
    replica.apply(summed)
    twin.apply(msgspec.structs.replace(update, utilities=np.zeros_like(update.utilities)))
    assert replica.digest == twin.digest


def test_a_summed_update_takes_its_estimate_as_it_is() -> None:
    replica, twin = new_replica(), new_replica()
    update = update_of(0, rank=1, optimizer=MOMENTUM)
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
    twin.apply(update)
    no_utilities, coded = np.zeros(0, dtype=np.int8), encode_estimate(LAYOUT, estimate)
    replica.apply(msgspec.structs.replace(update, rank=0, utilities=no_utilities, estimate=coded))
    assert replica.digest == twin.digest != new_replica().digest


def test_estimate_of_another_model_is_refused_and_leaves_no_empty_slots_behind() -> None:
    replica = new_replica()
    before = replica.digest
    other = ParameterLayout((TensorSpec("vector", (5,)),))
    wrong = msgspec.structs.replace(update_of(0), estimate=encode_estimate(other, np.ones(5, dtype=np.int32)))
    with pytest.raises(ValueError, match=f"estimate of {LAYOUT.size} parameters: codes: expected one a row, 16, got 5"):
        replica.apply(wrong)
    assert (replica.digest, replica.slots, replica.numbers) == (before, {}, {})


@pytest.mark.parametrize("keeps_start", [False, True])
def test_genesis_has_the_digest_of_the_replica_that_begins_with_it(keeps_start: bool) -> None:
    snapshot = genesis(LAYOUT, WEIGHTS, step=7, keeps_start=keeps_start, threads=1)
    assert (snapshot.step, snapshot.numbers) == (7, {})
    assert list(snapshot.slots) == [START] * keeps_start
    assert restored(snapshot).digest == snapshot.digest
    np.testing.assert_array_equal(snapshot.weights, WEIGHTS)

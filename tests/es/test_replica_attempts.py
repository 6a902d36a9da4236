"""Updates keep a replica's weights, and take it to those that it kept."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.attempts import Attempt, Move
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.replica import BEST, Replica, genesis
from fedlearn.es.snapshot import START
from fedlearn.es.update import Update
from tests.es.replicas import ADAM, MOMENTUM, WEIGHTS, masks_of, new_replica, restored, update_of

ATTEMPT = Attempt(1, 0, 5.0, 4.0, 4.5, 4.0)


def going(step: int, move: Move, *, optimizer: AnyOptimizer = ADAM) -> Update:
    attempt = msgspec.structs.replace(ATTEMPT, move=move)
    return msgspec.structs.replace(update_of(step, optimizer=optimizer), attempt=attempt)


def test_anew_takes_the_first_weights_with_an_optimizer_that_remembers_nothing() -> None:
    replica = new_replica(keeps_start=True)
    for step in range(3):
        replica.apply(update_of(step))
    replica.apply(going(3, "anew"))
    np.testing.assert_array_equal(replica.weights, WEIGHTS)
    assert not any(replica.slots[name].any() for name in ADAM.slots)
    fresh = new_replica(step=4, keeps_start=True)
    for each in (replica, fresh):
        each.apply(update_of(4))
    assert replica.digest == fresh.digest


def test_what_is_observed_is_not_taken_back() -> None:
    layout = ParameterLayout((TensorSpec("weights", (3,)), TensorSpec("mean", (2,), scale=0.0)))
    start = np.arange(5, dtype=np.float32)
    replica = Replica(layout, genesis(layout, start, keeps_start=True), seed=9, row_masks=masks_of)
    replica.weights[3:] = 7.0
    replica.apply(going(0, "anew"))
    assert replica.weights.tolist() == [0.0, 1.0, 2.0, 7.0, 7.0]


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM], ids=lambda optimizer: type(optimizer).__name__)
def test_back_takes_the_weights_that_were_kept_last(optimizer: AnyOptimizer) -> None:
    replica = new_replica(keeps_start=True)
    replica.apply(going(0, "keep", optimizer=optimizer))
    replica.apply(going(1, "keep", optimizer=optimizer))
    kept = replica.weights.copy()
    replica.apply(going(2, "on", optimizer=optimizer))
    assert (replica.weights != kept).any()
    replica.apply(going(3, "back", optimizer=optimizer))
    np.testing.assert_array_equal(replica.weights, kept)
    assert not any(replica.slots[name].any() for name in optimizer.slots)


def test_a_replica_from_a_snapshot_goes_back_alike() -> None:
    replica = new_replica(keeps_start=True)
    replica.apply(going(0, "keep"))
    replica.apply(going(1, "on"))
    other = restored(replica.snapshot())
    for each in (replica, other):
        each.apply(going(2, "back"))
    assert other.digest == replica.digest


def test_a_run_that_settles_forgets_its_first_weights_unless_they_pull() -> None:
    replica, pulled, other = new_replica(keeps_start=True), new_replica(keeps_start=True), new_replica()
    for each in (replica, pulled):
        each.apply(going(0, "keep"))
    other.apply(update_of(0))
    replica.apply(going(1, "settle"))
    pulled.apply(msgspec.structs.replace(going(1, "settle"), decay_towards="start"))
    other.apply(update_of(1))
    assert replica.digest == other.digest
    assert BEST not in pulled.slots
    np.testing.assert_array_equal(pulled.slots[START], WEIGHTS)


@pytest.mark.parametrize("move", ["anew", "back"])
def test_a_replica_that_keeps_no_weights_refuses_and_takes_no_step(move: Move) -> None:
    replica = new_replica()
    with pytest.raises(ValueError, match=f"attempt: expected a run that keeps the weights .*, got {move} in another"):
        replica.apply(going(0, move))
    assert replica.step == 0
    np.testing.assert_array_equal(replica.weights, WEIGHTS)

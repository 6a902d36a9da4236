"""How a replica lets weights decay, and which tensors stay as they are."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.optimizers import AnyOptimizer, Sgd
from fedlearn.es.replica import genesis
from fedlearn.es.snapshot import START
from fedlearn.es.update import DecayTowards
from tests.es.replicas import (
    ADAM,
    LAYOUT,
    MOMENTUM,
    WEIGHTS,
    new_replica,
    restored,
    update_of,
    without_members,
)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, Sgd(0.01, 0.0)])
def test_weight_decay_shrinks_matrices_by_the_unscaled_learning_rate(optimizer: AnyOptimizer, rank: int) -> None:
    replica = new_replica()
    before = LAYOUT.split(replica.weights.copy())
    update = without_members(update_of(0, optimizer=optimizer, decay=5.0))
    replica.apply(msgspec.structs.replace(update, rank=rank))
    after = LAYOUT.split(replica.weights)
    for name, kept in (("matrix", 0.95), ("vector", 1.0), ("square", 0.95)):
        np.testing.assert_array_equal(after[name], before[name] * np.float32(kept))


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, Sgd(0.01, 0.0)])
def test_decay_towards_the_start_pulls_every_tensor_by_the_unscaled_rate_before_the_step(
    optimizer: AnyOptimizer,
) -> None:
    pulled, plain = new_replica(keeps_start=True), new_replica(keeps_start=True)
    for replica in (pulled, plain):
        replica.weights += np.float32(0.5)
    pulled.apply(update_of(0, optimizer=optimizer, decay=5.0, towards="start"))
    plain.weights[:] = np.float32(0.95) * plain.weights + np.float32(0.05) * WEIGHTS
    plain.apply(update_of(0, optimizer=optimizer))
    np.testing.assert_array_equal(pulled.weights, plain.weights)
    assert pulled.digest == plain.digest


def test_weights_at_their_start_are_pulled_nowhere() -> None:
    replica = new_replica(keeps_start=True)
    replica.apply(without_members(update_of(0, optimizer=Sgd(0.01, 0.0), decay=50.0, towards="start")))
    np.testing.assert_array_equal(replica.weights, WEIGHTS)


def test_the_start_stays_where_it_was() -> None:
    replica = new_replica(keeps_start=True)
    for step in range(3):
        replica.apply(update_of(step, decay=5.0, towards="start"))
    np.testing.assert_array_equal(replica.slots[START], WEIGHTS)
    assert np.abs(replica.weights - WEIGHTS).min() > 0.0


def test_decay_towards_a_start_that_is_not_kept_is_refused_and_changes_nothing() -> None:
    replica = new_replica()
    before = replica.digest
    with pytest.raises(ValueError, match="weight_decay_towards: expected a run that keeps its start"):
        replica.apply(update_of(0, decay=1.0, towards="start"))
    assert (replica.step, replica.digest) == (0, before)


@pytest.mark.parametrize("towards", ["zero", "start"])
@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM])
def test_a_tensor_of_scale_zero_never_changes(optimizer: AnyOptimizer, towards: DecayTowards) -> None:
    frozen, *others = LAYOUT.tensors
    layout = ParameterLayout((msgspec.structs.replace(frozen, scale=0.0), *others))
    replica = restored(genesis(layout, WEIGHTS, keeps_start=True), layout=layout)
    replica.weights += np.float32(0.5)
    before = replica.weights.copy()
    for step in range(3):
        replica.apply(update_of(step, optimizer=optimizer, decay=5.0, towards=towards))
    changed = LAYOUT.split(replica.weights != before)
    assert {name: bool(part.all()) for name, part in changed.items()} == {
        "matrix": False,
        "vector": True,
        "square": True,
    }
    assert not changed["matrix"].any()
    for name in optimizer.slots:
        assert not LAYOUT.split(replica.slots[name])["matrix"].any()

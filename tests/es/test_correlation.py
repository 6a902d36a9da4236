"""Noise that a factor correlates, and the steps that adapt the factor."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.correlation import correlated_noise, start_factor
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import Dense, member_noise
from fedlearn.es.optimizers.cma import Cma
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from tests.es.replicas import update_of

LAYOUT = ParameterLayout(
    (
        TensorSpec("matrix", (2, 3)),
        TensorSpec("fixed", (3,), scale=0.0),
        TensorSpec("vector", (2,), scale=4.0),
        TensorSpec("factor", (8, 8), scale=0.0, statistic="factor"),
    )
)
PLAIN = ParameterLayout(LAYOUT.tensors[:3])
TRIALS = Trials(3, Perturbation(0.5, 0), group_size=4, first_member=8, n_members=8)
GOLDEN = "2af42f224f2d2c30"


def weights_with(factor: Float32Array) -> Float32Array:
    start = np.arange(1, 12, dtype=np.float32)
    return np.concatenate([start, factor.ravel()])


def new_replica(*, threads: int = 1) -> Replica:
    weights = weights_with(start_factor(8))
    return Replica(LAYOUT, genesis(LAYOUT, weights), seed=9, row_masks=lambda _: None, threads=threads)


def search_update(step: int) -> Update:
    return update_of(step, optimizer=Cma(0.25), rank=0)


def moved(n_steps: int, *, threads: int = 1) -> Replica:
    replica = new_replica(threads=threads)
    for step in range(n_steps):
        replica.apply(search_update(step))
    return replica


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 64, 200])
def test_the_first_factor_is_orthogonal_and_mixes_all_signs(n: int) -> None:
    factor = start_factor(n).astype(np.float64)
    np.testing.assert_allclose(factor @ factor.T, np.eye(n), atol=1e-6)
    if n > 2:
        assert np.abs(factor).max() < 0.9


def test_with_a_factor_of_one_noise_is_what_it_is_without() -> None:
    noise = correlated_noise(LAYOUT, weights_with(np.eye(8, dtype=np.float32)), TRIALS, seed=1)
    plain = member_noise(PLAIN, TRIALS, seed=1)
    for found, expected in zip(noise, [*plain, None], strict=True):
        assert isinstance(found, Dense)
        if expected is None:
            assert found.noise.shape == (8, 8, 8)
            assert not found.noise.any()
        else:
            assert isinstance(expected, Dense)
            np.testing.assert_array_equal(found.noise, expected.noise)


def test_the_factor_turns_signs_before_sigma_and_scale() -> None:
    factor = np.arange(64, dtype=np.float32).reshape(8, 8)
    plain, turned = (
        np.concatenate(
            [
                entry.noise.reshape(8, -1)
                for entry in correlated_noise(LAYOUT, weights_with(array), TRIALS, seed=1)
                if isinstance(entry, Dense)
            ],
            axis=1,
        )[:, [0, 1, 2, 3, 4, 5, 9, 10]]
        for array in (np.eye(8, dtype=np.float32), factor)
    )
    scales = np.array([0.5] * 6 + [2.0] * 2)
    np.testing.assert_allclose(turned, (plain / scales) @ factor.T * scales, rtol=1e-6)


def test_only_what_is_searched_moves_and_the_factor_with_it() -> None:
    before, after = new_replica(), moved(1)
    assert after.step == 1
    is_changed = before.weights != after.weights
    assert is_changed[:6].all()
    assert not is_changed[6:9].any()
    assert is_changed[9:11].all()
    assert is_changed[11:].all()
    assert after.slots["path"].nonzero()[0].tolist() == [0, 1, 2, 3, 4, 5, 9, 10]


def test_every_machine_has_the_same_bits_by_any_number_of_threads() -> None:
    assert moved(6).digest.hex() == moved(6, threads=3).digest.hex() == GOLDEN


def test_a_replica_goes_on_from_a_snapshot() -> None:
    replica = Replica(LAYOUT, moved(3).snapshot(), seed=9, row_masks=lambda _: None, threads=1)
    for step in range(3, 6):
        replica.apply(search_update(step))
    assert replica.digest == moved(6).digest


def test_members_step_as_they_were_tried() -> None:
    replica, update = new_replica(), search_update(0)
    members = []
    for first, count in update.spans:
        trials = Trials(0, Perturbation(0.25, 0), update.group_size, first, count)
        noise = correlated_noise(LAYOUT, replica.weights, trials, seed=9)
        members.append(np.concatenate([e.noise.reshape(count, -1) for e in noise if isinstance(e, Dense)], axis=1))
    better = np.maximum(update.utilities, 0).astype(np.float64)
    expected = better @ np.concatenate(members) / better.sum()
    start = replica.weights.copy()
    replica.apply(update)
    np.testing.assert_allclose((replica.weights - start)[:11], expected[:11], rtol=1e-4, atol=1e-6)


def test_antithetic_members_are_opposite() -> None:
    replica, other = new_replica(), new_replica()
    utilities = np.zeros(12, dtype=np.int8)
    utilities[0], utilities[1] = 1, -1
    update = msgspec.structs.replace(search_update(0), utilities=utilities, antithetic=True)
    replica.apply(update)
    other.apply(msgspec.structs.replace(update, utilities=-utilities))
    np.testing.assert_allclose(
        (replica.weights - new_replica().weights)[:11], (new_replica().weights - other.weights)[:11], atol=1e-6
    )


def test_an_update_that_does_not_tell_members_apart_is_refused() -> None:
    plain = Replica(PLAIN, genesis(PLAIN, np.zeros(11, dtype=np.float32)), seed=9, row_masks=lambda _: None, threads=1)
    with pytest.raises(ValueError, match=r"optimizer: expected utilities of members .* got a model without a factor"):
        plain.apply(search_update(0))
    with pytest.raises(ValueError, match="spans: expected members"):
        new_replica().apply(msgspec.structs.replace(search_update(0), utilities=np.zeros(3, dtype=np.int8)))

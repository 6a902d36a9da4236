"""Noise that a factor correlates, and the steps that adapt the factor."""

import re

import msgspec
import numpy as np
import pytest

import es_core
from fedlearn.es import correlation
from fedlearn.es.attempts import Attempt, Move
from fedlearn.es.correlation import correlated_noise
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import Dense
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
DIAGONAL = ParameterLayout((*LAYOUT.tensors[:3], TensorSpec("factor", (8,), scale=0.0, statistic="factor")))
TRIALS = Trials(3, Perturbation(0.5, 0), group_size=4, first_member=8, n_members=8)
MIXING: Float32Array = (np.eye(8) + np.tri(8, k=-1) / 4).astype(np.float32)
GOLDEN = "3f66af99448370da"
DEVIATIONS: Float32Array = np.linspace(0.5, 2.25, 8, dtype=np.float32)
GOLDEN_DIAGONAL = "ee243c102722b4a0"


def weights_with(factor: Float32Array) -> Float32Array:
    start = np.arange(1, 12, dtype=np.float32)
    return np.concatenate([start, factor.ravel()])


def new_replica(layout: ParameterLayout = LAYOUT, *, threads: int = 1) -> Replica:
    weights = weights_with(MIXING if layout == LAYOUT else DEVIATIONS)
    return Replica(layout, genesis(layout, weights), seed=9, row_masks=lambda _: None, threads=threads)


def search_update(step: int) -> Update:
    return update_of(step, optimizer=Cma(0.25), rank=0)


def moved(n_steps: int, layout: ParameterLayout = LAYOUT, *, threads: int = 1) -> Replica:
    replica = new_replica(layout, threads=threads)
    for step in range(n_steps):
        replica.apply(search_update(step))
    return replica


def test_with_a_factor_of_one_noise_is_four_signs_of_each_number() -> None:
    noise = correlated_noise(LAYOUT, weights_with(np.eye(8, dtype=np.float32)), TRIALS, seed=1)
    # The signs are those of the factors that a tensor would have at a higher rank.
    addresses = np.array([(number, factor, size) for factor in (0, 2, 4, 6) for number, size in ((0, 6), (2, 2))])
    ones, firsts = np.ones(8, dtype=np.float32), np.zeros(8, dtype=np.int64)
    signs = es_core.member_signs(1, 3, 8, 8, addresses, ones, firsts, antithetic=False, threads=1)
    expected = signs.reshape(8, 4, 8).sum(axis=1) / 2 * np.array([0.5] * 6 + [2.0] * 2)
    matrix, fixed, vector, factor = (entry.noise for entry in noise if isinstance(entry, Dense))
    np.testing.assert_array_equal(np.concatenate([matrix.reshape(8, 6), vector], axis=1), expected)
    assert (fixed.shape, factor.shape) == ((8, 3), (8, 8, 8))
    assert not fixed.any()
    assert not factor.any()


def test_numbers_have_no_mean_and_a_variance_of_one_and_are_nearly_normal() -> None:
    layout = ParameterLayout((TensorSpec("x", (50,)), TensorSpec("factor", (50, 50), scale=0.0, statistic="factor")))
    weights = np.concatenate([np.zeros(50, dtype=np.float32), np.eye(50, dtype=np.float32).ravel()])
    trials = Trials(0, Perturbation(1.0, 0), group_size=400, first_member=0, n_members=400)
    entry, _ = correlated_noise(layout, weights, trials, seed=5)
    assert isinstance(entry, Dense)
    numbers = entry.noise.astype(np.float64).ravel()
    assert set(numbers.tolist()) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert abs(numbers.mean()) < 0.03
    assert (numbers**2).mean() == pytest.approx(1.0, abs=0.03)
    assert (numbers**4).mean() == pytest.approx(2.5, abs=0.1)


def test_the_factor_turns_numbers_before_sigma_and_scale() -> None:
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


def test_every_machine_has_the_same_bits_of_a_diagonal_however_many_members_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert moved(6, DIAGONAL).digest.hex() == moved(6, DIAGONAL, threads=3).digest.hex() == GOLDEN_DIAGONAL
    for numbers in (1, 48):  # two and six members at once
        monkeypatch.setattr(correlation, "BLOCK_NUMBERS", numbers)
        assert moved(6, DIAGONAL).digest.hex() == GOLDEN_DIAGONAL
        assert moved(6).digest.hex() == GOLDEN


@pytest.mark.parametrize("layout", [LAYOUT, DIAGONAL], ids=["matrix", "diagonal"])
def test_a_replica_goes_on_from_a_snapshot(layout: ParameterLayout) -> None:
    replica = Replica(layout, moved(3, layout).snapshot(), seed=9, row_masks=lambda _: None, threads=1)
    for step in range(3, 6):
        replica.apply(search_update(step))
    assert replica.digest == moved(6, layout).digest


def test_a_snapshot_with_a_factor_of_another_shape_is_refused() -> None:
    for layout, other in ((LAYOUT, DIAGONAL), (DIAGONAL, LAYOUT)):
        message = rf"weights: expected float32 \[{layout.size}\], got float32 \[{other.size}\]"
        with pytest.raises(ValueError, match=message):
            Replica(layout, moved(1, other).snapshot(), seed=9, row_masks=lambda _: None, threads=1)


@pytest.mark.parametrize("shape", [(7,), (9,), (4, 16), (64,), (8, 1), (2, 4)])
def test_a_factor_that_is_neither_a_matrix_nor_a_diagonal_of_what_is_searched_is_refused(
    shape: tuple[int, ...],
) -> None:
    layout = ParameterLayout((*PLAIN.tensors, TensorSpec("factor", shape, scale=0.0, statistic="factor")))
    weights = np.ones(layout.size, dtype=np.float32)
    replica = Replica(layout, genesis(layout, weights), seed=9, row_masks=lambda _: None, threads=1)
    message = (
        rf"factor: expected \[8, 8\], or a diagonal \[8\], for 8 searched numbers, got {re.escape(str(list(shape)))}"
    )
    with pytest.raises(ValueError, match=message):
        replica.apply(search_update(0))
    with pytest.raises(ValueError, match=message):
        correlated_noise(layout, weights, TRIALS, seed=1)
    np.testing.assert_array_equal(replica.weights, weights)
    assert replica.step == 0


def test_the_noise_of_a_diagonal_is_that_of_a_matrix_with_it() -> None:
    vector, matrix = (
        correlated_noise(layout, weights_with(factor), TRIALS, seed=1)
        for layout, factor in ((DIAGONAL, DEVIATIONS), (LAYOUT, np.diag(DEVIATIONS)))
    )
    for one, other in zip(vector[:3], matrix[:3], strict=True):
        assert isinstance(one, Dense)
        assert isinstance(other, Dense)
        np.testing.assert_array_equal(one.noise, other.noise)
    assert isinstance(vector[3], Dense)
    assert vector[3].noise.shape == (8, 8)  # members, n
    assert not vector[3].noise.any()


def test_a_diagonal_and_what_is_searched_move_and_nothing_else() -> None:
    before, after = new_replica(DIAGONAL), moved(1, DIAGONAL)
    is_changed = before.weights != after.weights
    assert is_changed[[*range(6), *range(9, 19)]].all()
    assert not is_changed[6:9].any()
    assert after.slots["path"].nonzero()[0].tolist() == [0, 1, 2, 3, 4, 5, 9, 10]


@pytest.mark.parametrize("layout", [LAYOUT, DIAGONAL], ids=["matrix", "diagonal"])
def test_members_step_as_they_were_tried(layout: ParameterLayout) -> None:
    replica, update = new_replica(layout), search_update(0)
    members = []
    for first, count in update.spans:
        trials = Trials(0, Perturbation(0.25, 0), update.group_size, first, count)
        noise = correlated_noise(layout, replica.weights, trials, seed=9)
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


def attempted(replica: Replica, step: int, move: Move) -> None:
    replica.apply(msgspec.structs.replace(search_update(step), attempt=Attempt(1, 0, move=move)))


def searching_replica() -> Replica:
    """A replica that keeps its first weights."""
    begun = genesis(LAYOUT, weights_with(MIXING), keeps_start=True)
    return Replica(LAYOUT, begun, seed=9, row_masks=lambda _: None, threads=1)


def test_a_search_begins_elsewhere_with_its_first_factor() -> None:
    replica = searching_replica()
    for step in range(3):
        replica.apply(search_update(step))
    attempted(replica, 3, "anew")
    np.testing.assert_array_equal(replica.weights[11:], MIXING.ravel())
    np.testing.assert_array_equal(replica.weights[6:9], [7.0, 8.0, 9.0])
    assert not replica.slots["path"].any()
    # Where a member of that step would be, with sigma alone: 0.25, of the vector four times as much.
    trials = Trials(3, Perturbation(0.25, 0), group_size=4, first_member=0, n_members=4)
    matrix, _, vector, _ = correlated_noise(LAYOUT, weights_with(np.eye(8, dtype=np.float32)), trials, seed=9)
    assert isinstance(matrix, Dense)
    assert isinstance(vector, Dense)
    np.testing.assert_array_equal(replica.weights[:6] - np.arange(1, 7), matrix.noise[0].ravel())
    np.testing.assert_array_equal(replica.weights[9:11] - np.arange(10, 12), vector.noise[0])
    assert matrix.noise[0].any()


def test_a_search_goes_back_to_its_best_weights() -> None:
    replica = searching_replica()
    attempted(replica, 0, "keep")
    kept = replica.weights.copy()
    attempted(replica, 1, "anew")
    replica.apply(search_update(2))
    assert (replica.weights != kept).any()
    attempted(replica, 3, "back")
    np.testing.assert_array_equal(replica.weights, kept)
    assert not replica.slots["path"].any()


def test_each_attempt_begins_at_another_place() -> None:
    replica = searching_replica()
    attempted(replica, 0, "anew")
    first = replica.weights.copy()
    attempted(replica, 1, "anew")
    assert (replica.weights[:6] != first[:6]).any()


def test_an_update_that_does_not_tell_members_apart_is_refused() -> None:
    plain = Replica(PLAIN, genesis(PLAIN, np.zeros(11, dtype=np.float32)), seed=9, row_masks=lambda _: None, threads=1)
    with pytest.raises(ValueError, match=r"optimizer: expected utilities of members .* got a model without a factor"):
        plain.apply(search_update(0))
    with pytest.raises(ValueError, match="spans: expected members"):
        new_replica().apply(msgspec.structs.replace(search_update(0), utilities=np.zeros(3, dtype=np.int8)))

"""Ask and tell, for code that evaluates the members itself."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.function.evolution import POPULATION, EvolutionStrategy

Losses = NDArray[np.float64]


def sphere(members: Float32Array) -> Losses:
    return np.asarray((members.astype(np.float64) ** 2).sum(axis=1))


def trained(es: EvolutionStrategy[Float32Array], n_steps: int, *, factor: float = 1.0, shift: float = 0.0) -> Losses:
    for _ in range(n_steps):
        es.tell(factor * sphere(es.ask()) + shift)
    return es.weights.astype(np.float64)


def test_members_are_scattered_in_opposite_pairs_around_the_weights() -> None:
    es = EvolutionStrategy(np.arange(3.0), sigma=0.5, population=8)
    members = es.ask()
    assert members.shape == (8, 3)
    np.testing.assert_allclose(np.abs(members - es.weights), 0.5)
    np.testing.assert_allclose(members[0::2] + members[1::2], [2 * es.weights] * 4)


def test_members_stay_the_same_until_they_are_told_of() -> None:
    es = EvolutionStrategy(np.zeros(40), population=8)
    first = es.ask()
    np.testing.assert_array_equal(first, es.ask())
    es.tell(sphere(first))
    assert es.step == 1
    assert not np.array_equal(first - 0.0, es.ask() - es.weights)


def test_seeds_tell_searches_apart_and_one_seed_gives_one_search() -> None:
    first, same, other = (trained(EvolutionStrategy(np.ones(5), seed=seed), 20) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_named_arrays_come_and_go_by_their_names() -> None:
    target = {"matrix": np.eye(3), "vector": np.array([1.0, -1.0])}
    es = EvolutionStrategy({name: np.zeros_like(array) for name, array in target.items()}, steps=300)
    for _ in range(300):
        members = es.ask()
        assert {name: array.shape[1:] for name, array in members.items()} == {"matrix": (3, 3), "vector": (2,)}
        es.tell(sum(((members[n] - target[n]) ** 2).reshape(es.population, -1).sum(axis=1) for n in target))
    for name, array in target.items():
        np.testing.assert_allclose(es.weights[name], array, atol=1e-3)
        np.testing.assert_allclose(es.best[name], array, atol=0.05)


def test_a_matrix_takes_noise_of_the_rank_that_is_asked_for() -> None:
    es = EvolutionStrategy(np.zeros((6, 5)), rank=1)
    assert [np.linalg.matrix_rank(member) for member in es.ask()] == [1] * es.population
    full = EvolutionStrategy(np.zeros((6, 5)))
    assert max(np.linalg.matrix_rank(member) for member in full.ask()) == 5


def test_the_population_grows_with_the_parameters_within_its_bounds() -> None:
    assert [EvolutionStrategy(np.zeros(n)).population for n in (1, 50, 10_000)] == [POPULATION[0], 100, POPULATION[1]]


@pytest.mark.parametrize(("factor", "shift"), [(1e12, 0.0), (1.0, 1e6), (1e-9, 0.0)])
def test_neither_the_size_of_losses_nor_their_zero_matters(factor: float, shift: float) -> None:
    plain = trained(EvolutionStrategy(np.full(10, 3.0), steps=600), 600)
    found = trained(EvolutionStrategy(np.full(10, 3.0), steps=600), 600, factor=factor, shift=shift)
    assert np.abs(plain).max() < 1e-4
    np.testing.assert_allclose(found, plain, atol=1e-6)


def test_losses_that_grow_beyond_their_unit_are_gone_by_as_well() -> None:
    es = EvolutionStrategy(np.full(4, 1.0), steps=400)
    for step in range(400):
        es.tell(sphere(es.ask()) * (1e-9 if step < 20 else 1.0))
    assert np.abs(es.weights).max() < 1e-3


def test_loss_that_is_no_number_counts_like_the_worst() -> None:
    es = EvolutionStrategy(np.full(4, 2.0), steps=400)
    for _ in range(400):
        members = es.ask()
        losses = sphere(members)
        losses[members[:, 0] > es.weights[0]] = (np.nan, np.inf)[es.step % 2]
        es.tell(losses)
    assert es.weights[0] < -0.3  # it keeps away from the other side
    assert np.abs(es.weights[1:]).max() < 1e-3
    assert np.isfinite(es.best_loss)


@pytest.mark.parametrize("losses", [np.full(8, np.nan), np.ones(8)])
def test_losses_that_tell_nothing_apart_move_nothing(losses: Losses) -> None:
    es = EvolutionStrategy(np.ones(4), population=8)
    es.ask()
    es.tell(losses)
    np.testing.assert_array_equal(es.weights, np.ones(4))
    assert es.step == 1


def test_the_best_member_is_kept_with_its_loss() -> None:
    es, losses = EvolutionStrategy(np.full(6, 1.0), population=16), []
    for _ in range(30):
        members = es.ask()
        losses.append(sphere(members))
        es.tell(losses[-1])
        members[:] = 9.0  # whose they are
    assert es.best_loss == np.min(losses)
    np.testing.assert_allclose(sphere(es.best[np.newaxis])[0], es.best_loss, rtol=1e-6)


def test_members_that_the_caller_changes_stay_what_they_were() -> None:
    es = EvolutionStrategy(np.full(6, 1.0), population=16)
    members = es.ask()
    losses, best = sphere(members), members[np.argmin(sphere(members))].copy()
    members[:] = 9.0
    assert es.ask().max() < 2.0
    es.tell(losses)
    np.testing.assert_array_equal(es.best, best)


def test_without_an_end_the_search_goes_on_at_its_rate() -> None:
    es = EvolutionStrategy(np.full(3, 100.0), learning_rate=0.5)
    trained(es, 50)
    np.testing.assert_allclose(es.weights, 75.0, atol=3.0)


def test_what_is_given_out_is_nobodys_to_change() -> None:
    es = EvolutionStrategy(np.ones(3))
    es.weights[:] = 7.0
    np.testing.assert_array_equal(es.weights, np.ones(3))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sigma": 0.0}, "sigma: expected more than 0"),
        ({"sigma": float("nan")}, "sigma: expected 0.0 or more, got nan"),
        ({"learning_rate": -1.0}, "learning_rate: expected 0.0 or more"),
        ({"population": 7}, "population: expected an even number, since members come in pairs, got 7"),
        ({"population": 1}, "population: expected 2 or more"),
        ({"steps": -1}, "steps: expected 0 or more"),
        ({"rank": -1}, "rank: expected 0 or more"),
        ({"seed": -1}, "seed: expected 0 or more"),
        ({"x0": [1.0, np.inf]}, "start: expected finite numbers for x0"),
        ({"x0": {}}, "x0: expected at least one array"),
        ({"fitness_shaping": "best"}, "fitness_shaping: expected one of"),
    ],
)
def test_settings_out_of_range_are_refused_with_a_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EvolutionStrategy(**{"x0": [0.0], **settings})


def test_losses_are_refused_that_are_not_one_a_member_or_were_not_asked_for() -> None:
    es = EvolutionStrategy(np.zeros(3), population=8)
    with pytest.raises(ValueError, match="tell: expected a call of ask before it"):
        es.tell(np.zeros(8))
    es.ask()
    with pytest.raises(ValueError, match=r"losses: expected \[8\], one per member, got \[4\]"):
        es.tell(np.zeros(4))
    es.tell(np.arange(8.0))
    with pytest.raises(ValueError, match="call ask before each tell"):
        es.tell(np.zeros(8))


@pytest.mark.parametrize("loss", [1e6, -1e6, 1e40, 1.7e308, -1.7e308])
def test_a_loss_far_from_all_others_does_not_end_the_search(loss: float) -> None:
    es = EvolutionStrategy(np.full(3, 2.0), population=32, steps=300)
    trained(es, 10)
    es.tell([loss, *sphere(es.ask())[1:]])
    assert np.abs(trained(es, 289)).max() < 1e-3


def test_losses_that_float64_holds_no_squares_of_are_taken() -> None:
    es = EvolutionStrategy(np.zeros(3), population=4)
    es.ask()
    es.tell([1.7e308, -1.7e308, 1.7e308, -1.7e308])
    assert np.isfinite(es.weights).all()

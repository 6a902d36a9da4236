"""The covariance that members follow, against the tutorial and against functions whose answer is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedlearn.tasks.function.covariance import (
    INTEGER_DEVIATION,
    LARGEST_FULL,
    CovarianceSearch,
    Float64Array,
    rates_of,
)
from tests.tasks.function.functions import sphere

Losses = Callable[[Float64Array], Float64Array]


def search_from(start: Float64Array, *, deviation: float = 0.5, population: int = 0, seed: int = 0) -> CovarianceSearch:
    return CovarianceSearch(
        start,
        np.full(start.size, deviation),
        population=population or CovarianceSearch.usual_population(start.size),
        generator=np.random.default_rng(seed),
    )


def n_steps_until(search: CovarianceSearch, losses: Losses, target: float, most: int) -> int:
    while search.n_steps < most:
        found = losses(search.ask())
        search.tell(found)
        if found.min() < target:
            break
    return search.n_steps


def test_rates_are_those_of_the_tutorial() -> None:
    """For ten parameters and ten members, computed by hand from its table 1."""
    rates = rates_of(10, 10, is_diagonal=False)
    raw = math.log(5.5) - np.log(np.arange(1, 11))
    np.testing.assert_allclose(rates.weights[:5], raw[:5] / raw[:5].sum())
    assert rates.mass == pytest.approx(3.1673, abs=1e-4)
    assert rates.path_length == pytest.approx((3.1673 + 2) / (10 + 3.1673 + 5), abs=1e-5)
    assert rates.path_shape == pytest.approx((4 + 0.31673) / (14 + 0.63346), abs=1e-5)
    assert rates.rank_one == pytest.approx(2 / (11.3**2 + 3.1673), abs=1e-6)
    assert rates.rank_many == pytest.approx(2 * (0.25 + 3.1673 + 1 / 3.1673 - 2) / (144 + 3.1673), abs=1e-5)
    assert rates.damping == pytest.approx(1 + rates.path_length)
    # What all weights together forget, so that the covariance stays positive.
    assert -rates.weights[5:].sum() <= (1 - rates.rank_one - rates.rank_many) / (10 * rates.rank_many) + 1e-12


def test_a_diagonal_learns_faster() -> None:
    full, diagonal = (rates_of(40, 15, is_diagonal=way) for way in (False, True))
    assert diagonal.rank_one == pytest.approx(full.rank_one * 14)
    assert diagonal.rank_many == pytest.approx(full.rank_many * 14)


@pytest.mark.parametrize("population", [2, 3, 200])
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_every_size_has_rates_with_which_a_covariance_stays_positive(n: int, population: int) -> None:
    search = search_from(np.full(n, 3.0), population=population)
    for _ in range(30):
        search.tell(sphere(search.ask()))
    assert (search.variances > 0).all()
    assert np.isfinite(search.mean).all()


def steps_by_the_tutorial(search: CovarianceSearch, losses: Losses, n_steps: int) -> tuple[Float64Array, Float64Array]:
    """Mean and variances after steps of the same noise, as the tutorial writes them; some of its paths are too long."""
    n, rates = search.mean.size, rates_of(search.mean.size, search.population, is_diagonal=False)
    random, mean, size = np.random.default_rng(0), search.mean.copy(), 0.5
    covariance, path, shape_path, n_fast = np.eye(n), np.zeros(n), np.zeros(n), 0
    usual = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    c_s, c_c, c_1, c_m, mu = rates.path_length, rates.path_shape, rates.rank_one, rates.rank_many, rates.mass
    for step in range(1, n_steps + 1):
        factor = np.linalg.cholesky(covariance)
        z = random.standard_normal((search.population, n))
        order = np.argsort(losses(mean + size * z @ factor.T))
        better = [(w, z[i], factor @ z[i]) for w, i in zip(rates.weights, order, strict=True) if w > 0]
        worse = [(w, z[i], factor @ z[i]) for w, i in zip(rates.weights, order, strict=True) if w < 0]
        move = sum(w * y for w, _, y in better)
        mean = mean + size * move
        path = (1 - c_s) * path + math.sqrt(c_s * (2 - c_s) * mu) * sum(w * z_i for w, z_i, _ in better)
        length = float(np.linalg.norm(path))
        follows = length / math.sqrt(1 - (1 - c_s) ** (2 * step)) < (1.4 + 2 / (n + 1)) * usual
        n_fast += not follows
        shape_path = (1 - c_c) * shape_path + follows * math.sqrt(c_c * (2 - c_c) * mu) * move
        covariance = (
            (1 + c_1 * (1 - follows) * c_c * (2 - c_c) - c_1 - c_m * rates.weights.sum()) * covariance
            + c_1 * np.outer(shape_path, shape_path)
            + c_m * sum(w * np.outer(y, y) for w, _, y in better)
            + c_m * sum(w * n / (z_i @ z_i) * np.outer(y, y) for w, z_i, y in worse)
        )
        size *= math.exp(c_s / rates.damping * (length / usual - 1))
    assert 0 < n_fast < n_steps
    return mean, np.diagonal(covariance)


def test_steps_are_those_of_the_tutorial() -> None:
    def losses(points: Float64Array) -> Float64Array:
        return np.asarray(points @ np.arange(5.0))

    search = search_from(np.ones(5))
    mean, variances = steps_by_the_tutorial(search, losses, 25)
    for _ in range(25):
        search.tell(losses(search.ask()))
    np.testing.assert_allclose(search.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(search.variances, variances, rtol=1e-9)


def test_narrow_rotated_valley_is_learned() -> None:
    """Its widths differ by a thousand, along directions that no parameter has for itself."""
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((10, 10)))[0]

    def losses(points: Float64Array) -> Float64Array:
        return np.asarray((10.0 ** (6 * np.arange(10) / 9) * (points @ rotation) ** 2).sum(axis=1))

    assert n_steps_until(search_from(np.full(10, 3.0)), losses, 1e-9, 900) < 900


def test_beyond_some_parameters_their_variances_alone_are_learned() -> None:
    n = LARGEST_FULL + 1

    def losses(points: Float64Array) -> Float64Array:
        return np.asarray((10.0 ** (4 * np.arange(n) / n) * points**2).sum(axis=1))

    search = search_from(np.ones(n))
    assert n_steps_until(search, losses, 1.0, 3000) < 3000
    assert search.variances[0] > 100 * search.variances[-1]


def test_deviations_grow_on_a_slope_and_shrink_around_the_least_point() -> None:
    slope, bowl = search_from(np.zeros(5)), search_from(np.zeros(5))
    for _ in range(60):
        slope.tell(slope.ask()[:, 0])
        bowl.tell(sphere(bowl.ask()))
    assert slope.ask().std() > 100 * 0.5
    assert bowl.ask().std() < 0.01 * 0.5


def test_the_order_of_losses_is_all_that_counts() -> None:
    plain, bent = search_from(np.ones(4)), search_from(np.ones(4))
    for _ in range(20):
        plain.tell(sphere(plain.ask()))
        bent.tell(np.exp(sphere(bent.ask())) - 1e6)
    np.testing.assert_array_equal(plain.mean, bent.mean)


def test_search_ends_where_losses_or_members_do_not_differ_any_more() -> None:
    search = search_from(np.ones(3))
    while not (reason := search.why_done(1e-6)):
        search.tell(sphere(search.ask()))
    assert reason.endswith("steps differ by no more than 1e-06")
    while not (reason := search.why_done(0.0)):
        search.tell(np.arange(float(search.population)) if sphere(search.ask()).max() == 0 else sphere(search.ask()))
    assert "members lie within" in reason or "steps differ by no more than" in reason


def test_search_without_a_floor_ends() -> None:
    search = search_from(np.zeros(2))
    while not (reason := search.why_done(1e-11)):
        search.tell(-search.ask()[:, 0])
    assert reason in ("the members' deviations grew without bound", "the valley is too narrow for float64")


def test_integers_keep_members_apart_and_let_the_search_end() -> None:
    is_integer = np.array([True, True])
    search = CovarianceSearch(
        np.array([4.0, -3.0]), np.full(2, 0.5), population=6, generator=np.random.default_rng(0), is_integer=is_integer
    )
    while not search.why_done(1e-11):
        search.tell(sphere(np.round(search.ask())))
        assert search.n_steps < 500
    np.testing.assert_array_equal(np.round(search.mean), [0.0, 0.0])
    members = np.concatenate([search.ask() for _ in range(200)])
    assert (members.std(axis=0) > 0.8 * INTEGER_DEVIATION).all()

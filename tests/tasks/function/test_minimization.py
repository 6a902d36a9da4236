"""Which searches one call carries out, and how they begin."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlearn.tasks.function import minimization
from fedlearn.tasks.function.covariance import CovarianceSearch
from fedlearn.tasks.function.minimize import minimize
from tests.tasks.function.functions import Points, cigar, noisy_sphere, rastrigin, sphere


def test_methods_can_be_named() -> None:
    ways = {
        method: minimize(sphere, np.ones(4), method=method, maxiter=40, vectorized=True)
        for method in ("covariance", "diagonal", "adam")
    }
    assert ways["covariance"].fun < ways["adam"].fun < 1.0
    assert ways["diagonal"].fun < ways["adam"].fun
    assert not np.array_equal(ways["diagonal"].x, ways["covariance"].x)
    assert [found.nit for found in ways.values()] == [40, 40, 40]
    assert minimize(sphere, np.ones(4), maxiter=40, vectorized=True).fun == ways["covariance"].fun


def of_scales(points: Points) -> Points:
    """Narrow along some axes and wide along others."""
    return np.asarray((10.0 ** (4 * np.arange(points.shape[-1]) / points.shape[-1]) * points**2).sum(axis=-1))


@pytest.mark.parametrize(("f", "maxfev", "is_axis"), [(of_scales, 40_000, True), (cigar, 25_000, False)])
def test_of_many_numbers_directions_are_learned_or_scales_alone(
    f: Callable[[Points], Points], maxfev: int, is_axis: bool
) -> None:
    start = np.linspace(-1.0, 3.0, 201)
    usual, diagonal = (
        minimize(f, start, method=method, maxfev=maxfev, vectorized=True).fun for method in ("covariance", "diagonal")
    )
    lower, higher = (diagonal, usual) if is_axis else (usual, diagonal)
    assert lower < higher / 10


def test_noise_bounds_and_integers_of_many_numbers_learn_scales_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(minimization, "LowRankSearch", refused)
    minimize(noisy_sphere(1), np.ones(201), maxfev=100, vectorized=True)
    minimize(sphere, np.ones(201), integrality=np.arange(201) == 7, maxfev=100, vectorized=True)
    minimize(sphere, np.ones(201), bounds=[(None, None)] * 200 + [(None, 9.0)], maxfev=100, vectorized=True)
    minimize(sphere, np.ones(201), bounds=[(-9.0, None)] + [(None, None)] * 200, maxfev=100, vectorized=True)
    minimize(sphere, np.ones(200), maxfev=100, vectorized=True)
    with pytest.raises(AssertionError):
        minimize(sphere, np.ones(201), maxfev=100, vectorized=True)


def test_a_search_by_adam_comes_to_rest_at_its_last_step() -> None:
    found = minimize(sphere, np.ones(4), method="adam", maxiter=300, maxfev=10**6, population=31, vectorized=True)
    assert found.fun < 1e-3
    assert found.nfev == 2 + 300 * 32 + 1  # its members come in pairs


def test_searches_begin_with_the_deviations_that_were_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[tuple[int, float]]()

    def watched(start: Points, deviations: Points, **settings: Any) -> CovarianceSearch:  # noqa: ANN401
        begun.append((settings["population"], float(deviations[0])))
        return CovarianceSearch(start, deviations, **settings)

    monkeypatch.setattr(minimization, "CovarianceSearch", watched)
    minimize(rastrigin, np.full(3, 2.0), method="covariance", sigma=2.0, population=8, restarts=2, vectorized=True)
    large = [population for population, deviation in begun if deviation == 2.0]
    assert large == [8, 16, 32]
    assert len(begun) > len(large)
    assert all(0.02 <= deviation <= 2.0 for _, deviation in begun)
    begun.clear()
    minimize(rastrigin, np.full(3, 2.0), population=8, restarts=1, maxfev=3000, vectorized=True)
    assert [population for population, _ in begun] == [8, 32]  # fewer than four such searches are left

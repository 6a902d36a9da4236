"""One call, without tuning."""

import inspect
import re
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.tasks.function.minimize import minimize

Points = NDArray[Any]


def sphere(points: Points) -> Points:
    return np.asarray((points.astype(np.float64) ** 2).sum(axis=-1))


def rosenbrock(points: Points) -> Points:
    x = points.astype(np.float64)
    return np.asarray((100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(axis=-1))


@pytest.mark.parametrize(
    ("f", "start", "n", "steps", "most"),
    [
        (sphere, 3.0, 10, 1000, 1e-12),
        (sphere, 3.0, 100, 1000, 1e-9),
        (rosenbrock, 0.0, 10, 3000, 1e-2),
        (rosenbrock, 0.0, 30, 3000, 0.3),
    ],
)
def test_sphere_and_rosenbrock_are_found_without_tuning(f: Any, start: float, n: int, steps: int, most: float) -> None:  # noqa: ANN401
    began = time.perf_counter()
    found = minimize(f, np.full(n, start), steps=steps, vectorized=True)
    took_s = time.perf_counter() - began
    print(f"{f.__name__} in {n} dimensions: {found.fun:.1e} after {found.nfev} evaluations, {took_s:.1f} s")
    assert found.fun < most
    assert len(found.history) == steps
    assert found.history[-1] < found.history[0]


@pytest.mark.parametrize("vectorized", [False, True])
def test_function_that_returns_nothing_is_told(*, vectorized: bool) -> None:
    with pytest.raises(ValueError, match="f: expected a number, got None; return the loss"):
        minimize(lambda _: None, [0.0], steps=1, vectorized=vectorized)


def test_a_function_of_one_point_gives_what_a_vectorized_one_gives() -> None:
    one, all_at_once = (minimize(sphere, [1.0, 2.0], steps=20, vectorized=way) for way in (False, True))
    np.testing.assert_array_equal(one.x, all_at_once.x)
    assert one.fun == all_at_once.fun == sphere(one.x)


@pytest.mark.parametrize("vectorized", [False, True])
def test_arrays_by_name_are_given_by_name(vectorized: bool) -> None:
    def loss(arrays: dict[str, Points]) -> Points:
        return sphere(arrays["a"] - 1.0) + (arrays["b"].astype(np.float64) + 2.0) ** 2

    found = minimize(loss, {"a": np.zeros(3), "b": 0.0}, steps=400, vectorized=vectorized)
    np.testing.assert_allclose(found.x["a"], 1.0, atol=1e-3)
    np.testing.assert_allclose(found.x["b"], -2.0, atol=1e-3)
    assert found.nfev == 400 * 32 + 1


def test_history_passes_over_what_is_no_number() -> None:
    found = minimize(lambda x: x[0] if x[0] > 0 else np.nan, [0.05], steps=3, learning_rate=0.0)
    assert min(found.history) > 0.0
    nothing = minimize(lambda _: np.nan, [0.0], steps=2)
    assert np.isnan(nothing.history).all()
    assert np.isnan(nothing.fun)


def test_result_has_the_names_of_scipy_and_a_short_text() -> None:
    found = minimize(sphere, np.ones(1000), steps=2)
    assert (found.success, found.message, found.nfev) == (True, "2 steps are done", 2 * 256 + 1)
    assert len(repr(found)) < 200
    assert re.match(
        r"Minimum\(fun=[0-9.]+, nfev=\d+, success=True, message='2 steps are done', x=\[[0-9.]+", repr(found)
    )
    assert "x={'a': '[" in repr(minimize(lambda arrays: sphere(arrays["a"]), {"a": np.zeros(3)}, steps=1))
    assert len(f"minimize{inspect.signature(minimize)}") < 110


def test_search_that_found_nothing_finite_is_no_success() -> None:
    nowhere = minimize(lambda _: np.inf, [0.0], steps=2)
    assert (nowhere.success, nowhere.message) == (False, "the function is not finite anywhere; check its value at x0")
    at_the_end = minimize(lambda x: x[0] if x[0] > 1.0 else np.nan, [1.0], steps=2, learning_rate=10.0)
    assert (at_the_end.success, at_the_end.message) == (False, "the function is not finite at x")


def test_search_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        minimize(sphere, [0.0], steps=0)

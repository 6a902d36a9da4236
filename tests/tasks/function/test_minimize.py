"""One call, without tuning."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlearn.tasks.function.minimization import MOST_WITHOUT_LOSS, Minimum, ranked
from fedlearn.tasks.function.minimize import minimize
from tests.tasks.function.functions import Points, noisy_sphere, rastrigin, rosenbrock, sphere


@pytest.mark.parametrize(
    ("f", "start", "n", "maxfev", "most"),
    [
        (sphere, 3.0, 1, 0, 1e-12),
        (sphere, 3.0, 10, 0, 1e-12),
        (sphere, 300.0, 300, 0, 1e-7),
        (rosenbrock, 0.0, 10, 8_000, 1e-10),
        (rosenbrock, 0.0, 30, 60_000, 1e-10),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_least_points_are_found_without_tuning(
    f: Callable[[Points], Points], start: float, n: int, maxfev: int, most: float, seed: int
) -> None:
    found = minimize(f, np.full(n, start), maxfev=maxfev, vectorized=True, seed=seed)
    assert found.fun < most
    assert found.fun == f(found.x)
    assert found.nfev <= (maxfev or 10_000 + 1000 * n) + 1
    assert found.history[-1] < found.history[0]
    assert len(found.history) == found.nit


def test_restarts_leave_valleys_that_are_not_the_deepest() -> None:
    once, again = (
        minimize(rastrigin, np.full(8, 3.0), restarts=restarts, maxfev=100_000, vectorized=True) for restarts in (0, 9)
    )
    assert again.fun < 1e-9 < 0.9 < once.fun
    assert again.nfev > once.nfev


@pytest.mark.parametrize(
    ("n", "maxfev", "most"), [(10, 500, 1.5), (10, 20_000, 0.05), (100, 3_000, 4.0), (100, 20_000, 0.5)]
)
def test_noise_is_averaged_out(n: int, maxfev: int, most: float) -> None:
    """The best of the losses is a lucky one: what counts is the loss without noise where the search ended."""
    found = minimize(noisy_sphere(3), np.ones(n), maxfev=maxfev, vectorized=True)
    assert sphere(found.x) < most
    assert found.nfev <= maxfev


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-3])
def test_noise_that_is_small_beside_losses_costs_little(noise: float) -> None:
    """As where a function computes on several threads."""
    generator = np.random.default_rng(1)

    def fun(x: Any) -> float:  # noqa: ANN401
        exact = (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()
        return float(exact * (1.0 + noise * generator.standard_normal()))

    found = minimize(fun, np.zeros(5), seed=1)
    assert found.fun < 1e-9
    assert found.nfev < 6_000


def test_steps_of_a_noisy_function_have_more_members_as_evaluations_add_up() -> None:
    def sizes(noise: float, **settings: Any) -> list[int]:  # noqa: ANN401
        asked: list[int] = []
        generator = np.random.default_rng(1)

        def fun(points: Any) -> Any:  # noqa: ANN401
            asked.append(len(points))
            return (points**2).sum(axis=1) + noise * generator.standard_normal(len(points))

        minimize(fun, np.ones(10), maxfev=2_000, vectorized=True, **settings)
        return asked[1:-1]

    noisy = [n - 1 for n in sizes(1.0)]  # besides a member again
    assert noisy[:8] == [10] * 8
    assert noisy[8] == 20  # after 80 evaluations of ten numbers
    assert noisy == sorted(noisy)
    assert noisy[-1] >= 200
    assert set(sizes(0.0)) == set(sizes(1.0, population=10)) == {10}
    assert sizes(1.0, method="diagonal") == sizes(1.0)
    assert {*sizes(1.0, method="adam")} == {*sizes(0.0, method="adam")}
    assert len({*sizes(1.0, method="adam")}) == 1


def test_a_noisy_search_that_begins_again_has_few_members_again() -> None:
    asked: list[int] = []
    generator = np.random.default_rng(1)

    def fun(points: Any) -> Any:  # noqa: ANN401
        asked.append(len(points))
        return (points**2).sum(axis=1) * np.exp(0.5 * generator.standard_normal(len(points)))

    minimize(fun, np.ones(3), maxfev=60_000, restarts=1, vectorized=True)
    asked = [n - 1 for n in asked]
    assert asked[1] == 7
    anew = next(step for step in range(2, len(asked) - 1) if asked[step] < asked[step - 1])
    assert asked[anew] in (14, 28)  # four times as many as at first where few evaluations are left
    assert asked[anew - 1] > 100


def test_answer_lies_between_bounds_where_the_least_point_does_not() -> None:
    seen = list[Points]()

    def loss(points: Points) -> Points:
        seen.append(points)
        return sphere(points + 1.0)

    found = minimize(loss, np.full(6, 3.0), bounds=(0.0, 5.0), vectorized=True)
    np.testing.assert_allclose(found.x, 0.0, atol=1e-9)
    assert min(points.min() for points in seen) == 0.0
    assert max(points.max() for points in seen) <= 5.0


@pytest.mark.parametrize("method", ["covariance", "diagonal", "adam"])
def test_numbers_whose_bounds_are_equal_do_not_hide_the_others(method: str) -> None:
    found = minimize(lambda x: sphere(x - 1.5), np.zeros(3), bounds=[(0, 0), (0, 2), (0, 2)], method=method)
    assert found.x[0] == 0.0
    np.testing.assert_allclose(found.x[1:], 1.5, atol=1e-3)
    assert found.fun == sphere(found.x - 1.5)


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(
    ("shift", "fun", "message"),
    [(0.0, 5.0, "all numbers are fixed by their bounds"), (np.nan, np.inf, "the function is not finite anywhere; ")],
)
def test_where_nothing_is_free_the_function_is_called_once(
    shift: float, fun: float, message: str, *, vectorized: bool
) -> None:
    found = minimize(lambda x: sphere(x) + shift, [0.0, 0.0], bounds=[(1, 1), (2, 2)], vectorized=vectorized)
    assert found.x.tolist() == [1.0, 2.0]
    assert (found.fun, found.nfev, found.nit, found.success) == (fun, 1, 0, np.isfinite(fun))
    assert found.message.startswith(message)


def test_integers_are_found_beside_other_numbers() -> None:
    target = np.arange(6) * 0.69
    found = minimize(lambda x: sphere(x - target), np.full(6, 3.0), integrality=[True, False] * 3, vectorized=True)
    np.testing.assert_array_equal(found.x[::2], np.round(target[::2]))
    np.testing.assert_allclose(found.x[1::2], target[1::2], atol=1e-4)
    assert "differ by no more than" in found.message
    many = np.arange(15) * 0.69
    whole = minimize(lambda x: sphere(x - many), np.full(15, 3.0), integrality=True, vectorized=True)
    np.testing.assert_array_equal(whole.x, np.round(many))
    assert "differ by no more than" in whole.message


@pytest.mark.parametrize("workers", [1, 3])
def test_a_function_of_one_point_gives_what_a_vectorized_one_gives(workers: int) -> None:
    one = minimize(sphere, [1.0, 2.0], maxiter=20, workers=workers)
    all_at_once = minimize(sphere, [1.0, 2.0], maxiter=20, vectorized=True)
    np.testing.assert_array_equal(one.x, all_at_once.x)
    assert one.fun == all_at_once.fun == sphere(one.x)


@pytest.mark.parametrize(("workers", "n_members"), [(1, 10), (2, 10), (8, 16), (10, 10), (32, 32)])
def test_a_step_leaves_no_worker_without_a_member(workers: int, n_members: int) -> None:
    start, random = np.ones(10), np.random.default_rng(2)
    exact = minimize(sphere, start, maxiter=3, workers=workers)
    assert exact.nfev == 2 + 3 * n_members + 1
    noisy = minimize(lambda x: sphere(x) + random.standard_normal(), start, maxiter=3, workers=workers)
    in_step = (noisy.nfev - 3) // 3  # with a member again
    assert in_step % workers == 0 or workers == 1
    assert 11 <= in_step < 11 + workers
    assert minimize(sphere, start, maxiter=3, workers=workers, population=9).nfev == 2 + 3 * 9 + 1


@pytest.mark.parametrize(("maxfev", "n_members"), [(400, 10), (800, 16), (1600, 32), (10**6, 32)])
def test_few_evaluations_are_enough_for_many_steps_all_the_same(maxfev: int, n_members: int) -> None:
    found = minimize(sphere, np.ones(10), maxiter=3, maxfev=maxfev, workers=32)
    assert found.nfev == 2 + 3 * n_members + 1


def test_seeds_tell_searches_apart_and_one_seed_gives_one_search() -> None:
    first, same, other = (minimize(sphere, np.ones(5), maxiter=9, restarts=2, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.x, same.x)
    assert not np.array_equal(first.x, other.x)


@pytest.mark.parametrize("vectorized", [False, True])
def test_arrays_by_name_are_given_by_name(vectorized: bool) -> None:
    def loss(arrays: dict[str, Points]) -> Points:
        return sphere(arrays["a"] - 1.0) + (arrays["b"] + 2.0) ** 2

    found = minimize(loss, {"a": np.zeros(3), "b": 0.0}, bounds={"b": (-1.5, None)}, vectorized=vectorized)
    np.testing.assert_allclose(found.x["a"], 1.0, atol=1e-4)
    np.testing.assert_allclose(found.x["b"], -1.5, atol=1e-6)


def test_a_function_that_changes_its_argument_does_not_change_the_answer() -> None:
    def loss(x: Points) -> float:
        found = float(sphere(x - 1.0))
        x[:] = 7.0
        return found

    found = minimize(loss, [0.0, 0.0])
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)
    assert found.fun == sphere(found.x - 1.0)


def test_tolerance_ends_a_search_early() -> None:
    loose, tight = (minimize(sphere, np.ones(5), tol=tol) for tol in (1e-3, 1e-11))
    assert loose.nfev < 0.6 * tight.nfev
    assert tight.fun < loose.fun < 1e-3
    assert loose.message.endswith("steps differ by no more than 0.001")


def test_no_tolerance_is_the_usual_one() -> None:
    plain, none = minimize(sphere, np.ones(3)), minimize(sphere, np.ones(3), tol=None)
    assert (plain.nfev, plain.message) == (none.nfev, none.message)
    assert plain.message.endswith("steps differ by no more than 1e-11")


def test_a_function_such_as_map_may_evaluate() -> None:
    plain, mapped = minimize(sphere, np.ones(3), maxiter=9), minimize(sphere, np.ones(3), maxiter=9, workers=map)
    np.testing.assert_array_equal(mapped.x, plain.x)


def test_limits_of_steps_and_evaluations_are_kept() -> None:
    steps = minimize(sphere, np.ones(5), maxiter=3)
    assert (steps.nit, steps.message) == (3, "3 steps are done")
    evaluations = minimize(sphere, np.ones(5), maxfev=50)
    assert evaluations.nfev == 2 + 5 * 8 + 1
    assert evaluations.message == "of 50 evaluations fewer are left than a step takes"
    assert minimize(sphere, np.ones(5), maxfev=51).nfev == 51
    spent = [minimize(noisy_sphere(3), np.ones(5), maxfev=most, vectorized=True).nfev for most in range(50, 60)]
    assert spent[:7] == [2 + 5 * 9 + 1] * 7
    assert spent[7] == 57
    assert minimize(sphere, np.ones(5), maxfev=1).nit == 1


def test_callback_sees_each_step_and_may_end_the_search() -> None:
    seen = list[Minimum[Any]]()

    def callback(found: Minimum[Any]) -> None:
        seen.append(found)
        if found.nit == 5:
            raise StopIteration

    found = minimize(sphere, np.ones(4), callback=callback)
    assert [each.nit for each in seen] == [1, 2, 3, 4, 5]
    assert [each.fun for each in seen] == sorted((each.fun for each in seen), reverse=True)
    assert (found.nit, found.message) == (5, "the callback ended the search")


def test_history_passes_over_what_is_no_number() -> None:
    found = minimize(lambda x: x[0] if x[0] > 0 else np.nan, [0.05], maxiter=3)
    assert min(found.history) > 0.0
    assert 0.0 < found.fun <= 0.05


def test_result_has_the_names_of_scipy_and_a_short_text() -> None:
    found = minimize(sphere, np.ones(1000), maxiter=2)
    assert (found.success, found.message, found.nfev, found.nit) == (True, "2 steps are done", 2 + 2 * 24 + 1, 2)
    assert found.x.dtype == np.float64
    assert len(repr(found)) < 200
    assert re.match(
        r"Minimum\(fun=[0-9.]+, nfev=\d+, success=True, message='2 steps are done', x=\[[0-9.]+", repr(found)
    )
    named = repr(minimize(lambda arrays: sphere(arrays["a"].ravel()), {"a": np.zeros((3, 2))}, maxiter=1))
    assert "x={'a': '[[" in named
    assert "\\n" not in named
    assert len(f"minimize{inspect.signature(minimize)}") < 100  # a line


def test_search_that_found_nothing_finite_is_no_success() -> None:
    nowhere = minimize(lambda _: np.inf, [0.0])
    assert (nowhere.success, nowhere.message) == (False, "the function is not finite anywhere; check its value at x0")
    assert nowhere.nit == MOST_WITHOUT_LOSS
    assert np.isnan(nowhere.history).all()


def test_losses_out_of_bounds_grow_with_the_way_and_others_stay() -> None:
    members = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 4.0]])
    losses = np.array([1.0, 2.0, np.nan, 4.0])
    np.testing.assert_array_equal(ranked(losses, members, np.zeros((4, 2))), [1.0, 2.0, 4.0, 4.0])
    away = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    spread, deviation = 2.25, np.array([0.0, 1.0, 2.0, 3.0]).std()
    np.testing.assert_allclose(
        ranked(losses, members, away), [1.0, 2.0 + spread / deviation**2, 4.0 + 4 * spread / deviation**2, 4.0]
    )
    np.testing.assert_array_equal(ranked(np.full(4, np.inf), members, away), np.zeros(4))


def test_a_number_in_which_members_are_equal_does_not_rank_them() -> None:
    members, away = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[0.5, 0.0], [0.5, 1.0]])
    np.testing.assert_array_equal(ranked(np.array([1.0, 3.0]), members, away), [1.0, 3.0 + 1.0])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tol": -1.0}, "tol: expected 0 or more, got -1"),
        ({"maxfev": -1}, "maxfev: expected 0 or more"),
        ({"maxiter": -1}, "maxiter: expected 0 or more"),
        ({"restarts": -1}, "restarts: expected 0 or more"),
        ({"sigma": np.nan}, "sigma: expected 0 or more, got nan"),
        ({"seed": -1}, "seed: expected 0 or more"),
        ({"population": 1}, "population: expected 0 or at least 2, got 1"),
        ({"tol": "little"}, "tol: expected 0 or more, got little"),
        ({"maxiter": None}, "maxiter: expected 0 or more, got None"),
        ({"workers": 0}, "workers: expected 1 or more, or a function such as map, got 0"),
        ({"workers": "all"}, "workers: expected 1 or more, or a function such as map, got all"),
        ({"workers": 2.5}, "workers: expected 1 or more, or a function such as map, got 2.5"),
        ({"method": "bfgs"}, "method: expected one of covariance, diagonal, adam, got 'bfgs'"),
        ({"sigmas": 1.0}, r"sigmas: expected a setting of minimize, got another name; did you mean sigma\?"),
        ({"disp": True}, "disp: expected a setting of minimize, got another name; there are integrality, restarts, "),
        ({"jac": True}, "jac: expected a setting of minimize, got another name; it is not needed"),
        ({"options": {"maxiter": 9}}, "options: .*; give each of them by its own name, such as maxiter=100"),
        ({"args": (1,)}, "args: .*; give fun what it takes besides x, as functools.partial does"),
    ],
)
def test_settings_out_of_range_are_refused_with_a_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        minimize(sphere, [0.0], **settings)

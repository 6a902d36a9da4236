import math
from collections.abc import Mapping
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import Dense, TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.function import FunctionTask, function
from fedlearn.tasks.function.task import FACTOR, MOST_DIAGONAL
from fedlearn.tasks.task import Batch, flat_weights
from tests.patience import LIMIT_S

Arrays = Mapping[str, Float32Array]
START = {"matrix": [[1.0, 2.0], [3.0, 4.0]], "vector": [5.0, 6.0]}
DATA = {"x": np.arange(6.0), "y": np.ones((6, 2))}
GROUP_SIZE = 4


def summed(arrays: Arrays) -> float:
    return float(sum((array**2).sum() for array in arrays.values()))


def weighed(arrays: Arrays, rows: Arrays) -> float:
    return float(summed(arrays) * rows["x"].sum())


def all_weighed(arrays: Arrays, rows: Arrays) -> Float32Array:
    squares = sum((array**2).reshape(len(array), -1).sum(axis=1) for array in arrays.values())
    return np.asarray(squares * rows["x"].sum(axis=1))


def noise_of(task: FunctionTask) -> list[TensorNoise]:
    trials = Trials(3, Perturbation(sigma=0.5, rank=1), GROUP_SIZE, first_member=0, n_members=2 * GROUP_SIZE)
    return member_noise(task.layout, trials, seed=1)


def losses_of(task: FunctionTask, batch: Batch) -> Float32Array:
    members = task.members(flat_weights(task.tensors), noise_of(task), n_groups=2)
    return task.losses(members, batch)


NO_ROWS = Batch(rows={}, seeds=(0, 0))
ROWS = Batch(rows={"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "y": np.ones((2, 2, 2))}, seeds=(0, 0))


def test_tensors_start_where_the_user_says() -> None:
    task = function(summed, START, covariance=False)
    assert [(spec.name, spec.shape) for spec in task.layout.tensors] == [("matrix", (2, 2)), ("vector", (2,))]
    np.testing.assert_array_equal(flat_weights(task.tensors), np.arange(1, 7, dtype=np.float32))


def test_the_start_is_a_copy_that_nobody_changes() -> None:
    start = np.ones(3, dtype=np.float32)
    task = function(summed, {"a": start})
    start[:] = 2.0
    np.testing.assert_array_equal(task.tensors["a"], np.ones(3))
    assert not task.tensors["a"].flags.writeable


def test_each_member_has_the_loss_of_its_arrays() -> None:
    task = function(summed, START, covariance=False)
    members = task.members(flat_weights(task.tensors), noise_of(task), n_groups=2)
    expected = [summed(arrays) for arrays in members.each()]
    losses = task.losses(members, NO_ROWS)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert losses.dtype == np.float32
    assert len(set(losses.tolist())) > 1


def test_members_see_the_rows_of_their_group() -> None:
    unweighed = losses_of(function(summed, START), NO_ROWS)
    losses = losses_of(function(weighed, START, DATA, batch_size=2), ROWS)
    np.testing.assert_allclose(losses, unweighed * np.repeat([3.0, 7.0], GROUP_SIZE).astype(np.float32), rtol=1e-6)


def test_a_vectorized_loss_gives_what_the_plain_one_gives() -> None:
    plain = losses_of(function(weighed, START, DATA, batch_size=2), ROWS)
    vectorized = losses_of(function(all_weighed, START, DATA, batch_size=2, vectorized=True), ROWS)
    np.testing.assert_allclose(vectorized, plain, rtol=1e-6)


def test_without_data_the_unperturbed_loss_is_reported() -> None:
    weights = np.arange(6, dtype=np.float32)
    assert function(summed, START, covariance=False).evaluate(weights, threads=1) == {"loss": 55.0}


def test_with_data_the_loss_on_held_out_rows_is_reported() -> None:
    weights, held_out = np.arange(6, dtype=np.float32), {"x": [1.0, 1.0, 2.0], "y": [0, 0, 0]}
    assert function(weighed, START, DATA).evaluate(weights, threads=1) == {}
    assert function(weighed, START, DATA, held_out=held_out).evaluate(weights, threads=1) == {"loss": 220.0}
    vectorized = function(all_weighed, START, DATA, held_out=held_out, vectorized=True)
    assert vectorized.evaluate(weights, threads=1) == {"loss": 220.0}


def test_a_reporting_loss_cannot_change_the_weights() -> None:
    def greedy(arrays: Any) -> float:  # noqa: ANN401
        arrays["vector"][:] = 0.0
        return 0.0

    weights = np.arange(6, dtype=np.float32)
    function(greedy, START, covariance=False).evaluate(weights, threads=1)
    np.testing.assert_array_equal(weights, np.arange(6))


def test_a_vectorized_loss_cannot_change_the_rows_that_it_is_judged_on() -> None:
    def greedy(arrays: Any, rows: Any) -> Float32Array:  # noqa: ANN401
        found = all_weighed(arrays, rows)
        arrays["vector"][:] = 0.0
        rows["x"][:] = 0.0
        return found

    held_out = {"x": np.ones(2), "y": np.zeros(2)}
    task = function(greedy, START, DATA, held_out=held_out, vectorized=True)
    weights = np.arange(6, dtype=np.float32)
    assert task.evaluate(weights, threads=1) == task.evaluate(weights, threads=1) == {"loss": 110.0}
    np.testing.assert_array_equal(weights, np.arange(6))


def test_a_loss_cannot_change_the_rows_that_all_members_share() -> None:
    def greedy(arrays: Any, rows: Any) -> float:  # noqa: ANN401, ARG001
        rows["x"][:] = 0.0
        return 0.0

    with pytest.raises(ValueError, match="read-only"):
        function(greedy, START, DATA, held_out={"x": np.ones(2), "y": np.zeros(2)}).evaluate(
            np.ones(6, np.float32), threads=1
        )


def test_work_is_counted_in_rows() -> None:
    task = function(weighed, START, DATA, batch_size=3)
    assert (task.kind, task.unit, task.work_per_member) == ("function", "examples", 3)


def test_scales_and_settings_are_the_users() -> None:
    task = function(summed, START, scales={"mat": 3.0, "or": 1.0}, settings={"sigma": 0.25, "steps": 7})
    assert {spec.name: spec.scale for spec in task.layout.tensors} == {
        "matrix": 3.0,
        "vector": 1.0,
        "noise.factor": 0.0,
    }
    assert (task.settings["sigma"], task.settings["steps"]) == (0.25, 7)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, np.float16(np.nan)])
def test_a_loss_that_is_not_finite_is_passed_on(value: float) -> None:
    assert not np.isfinite(losses_of(function(lambda _: value, START), NO_ROWS)).any()


@pytest.mark.parametrize(
    "value",
    [3, 3.0, np.float64(3), np.array(3), np.array(3, dtype=np.int8), [3.0], np.array([[3]])],
)
def test_any_number_is_a_loss(value: float) -> None:
    np.testing.assert_array_equal(losses_of(function(lambda _: value, START), NO_ROWS), np.full(8, 3.0))


def test_a_tensor_of_one_number_is_a_loss() -> None:
    value = pytest.importorskip("torch").tensor([3.0])
    np.testing.assert_array_equal(losses_of(function(lambda _: value, START), NO_ROWS), np.full(8, 3.0))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "expected one number, got NoneType 'None'; return a float"),
        ("12", "expected one number, got str '12'; return a float"),
        (1j, "expected one number, got complex '1j'; return a float"),
        ([1.0, 2.0], r"expected one number, got float64 \[2\]; is the loss vectorized"),
        ([[1], [1, 2]], "expected a number, got list: "),
    ],
)
def test_a_loss_that_is_no_number_is_named(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"loss: {message}"):
        losses_of(function(lambda _: value, START), NO_ROWS)


@pytest.mark.parametrize("value", [1.0, np.zeros((8, 1)), np.zeros(7)])
def test_a_vectorized_loss_gives_one_number_a_member(value: object) -> None:
    with pytest.raises(ValueError, match="loss: expected 8 numbers, one a member, got "):
        losses_of(function(lambda _: value, START, vectorized=True), NO_ROWS)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({}, "at least one array to train"),
        ({"a": "text"}, "expected numbers for a"),
        ({"a": []}, "expected finite numbers for a, got none"),
        ({"a": [1e300]}, "expected finite numbers for a, got nan or infinity"),
    ],
)
def test_a_start_that_cannot_be_learned_is_refused(start: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(summed, start)


def test_columns_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="data: expected columns of one length of at least 1, got x 3, y 2"):
        function(weighed, START, {"x": [1, 2, 3], "y": [1, 2]})
    with pytest.raises(ValueError, match="held_out: expected columns of one length of at least 1, got x 0"):
        function(weighed, START, {"x": [1]}, held_out={"x": []})
    with pytest.raises(ValueError, match=r"held_out: expected the columns of data \['x'\], got \['y'\]"):
        function(weighed, START, {"x": [1]}, held_out={"y": [1]})
    with pytest.raises(ValueError, match="batch_size: expected 1 or more, got 0"):
        function(weighed, START, {"x": [1]}, batch_size=0)


def test_noise_reaches_every_tensor() -> None:
    task = function(summed, START, covariance=False)
    assert all(np.any(entry.noise if isinstance(entry, Dense) else entry.rows) for entry in noise_of(task))


def test_so_many_workers_call_the_loss_at_the_same_time() -> None:
    together = Barrier(GROUP_SIZE, timeout=LIMIT_S)

    def meeting(arrays: Arrays, rows: Arrays) -> float:
        together.wait()
        return weighed(arrays, rows)

    one, many = (
        function(loss, START, DATA, batch_size=2, workers=n) for loss, n in ((weighed, 1), (meeting, GROUP_SIZE))
    )
    np.testing.assert_array_equal(losses_of(many, ROWS), losses_of(one, ROWS))


@pytest.mark.parametrize(("workers", "vectorized"), [(0, False), (-1, False), (2, True)])
def test_workers_that_make_no_sense_are_refused(workers: int, vectorized: bool) -> None:
    with pytest.raises(ValueError, match=f"workers: expected 1 or more, and 1 for a vectorized loss, got {workers}"):
        function(summed, START, workers=workers, vectorized=vectorized)


@pytest.mark.parametrize(
    ("arguments", "n_correlated"),
    [
        ({}, 6),
        ({"covariance": True}, 6),
        ({"covariance": False}, 0),
        ({"scales": {"matrix": 0.0}}, 2),
        ({"start": {"one": [1.0]}}, 0),
        ({"start": {"one": [1.0]}, "covariance": True}, 1),
        ({"start": {"many": np.ones(200)}}, 200),
        ({"start": {"more": np.ones(201)}, "covariance": True}, 201),
        ({"settings": {"optimizer": "cma", "sigma": 0.1}}, 6),
        ({"settings": {"optimizer": "adam"}}, 0),
        ({"settings": {"learning_rate": 0.1}}, 0),
        ({"loss": weighed, "data": DATA}, 0),
        ({"loss": weighed, "data": DATA, "covariance": True}, 6),
    ],
)
def test_the_noise_of_few_numbers_learns_their_covariance(arguments: dict[str, Any], n_correlated: int) -> None:
    task = function(**{"loss": summed, "start": START, **arguments})
    assert task.layout.is_correlated == (n_correlated > 0) == (task.settings.get("optimizer") == "cma")
    if n_correlated:
        assert task.tensors[FACTOR].shape == (n_correlated, n_correlated)
        assert task.layout.searched.size == n_correlated


@pytest.mark.parametrize(
    ("arguments", "n"),
    [
        ({"start": {"more": np.ones(201)}}, 201),
        ({"start": {"more": np.ones((40, 50))}}, 2000),
        ({"start": {"most": np.ones(MOST_DIAGONAL)}}, MOST_DIAGONAL),
        ({"start": {"too many": np.ones(MOST_DIAGONAL + 1)}}, 0),
        ({"start": {"more": np.ones(201)}, "covariance": False}, 0),
        ({"start": {"more": np.ones(201)}, "settings": {"optimizer": "adam"}}, 0),
        ({"start": {"more": np.ones(201)}, "settings": {"learning_rate": 0.1}}, 0),
        ({"start": {"more": np.ones(201)}, "settings": {"sigma": 0.1}}, 201),
        ({"start": {"more": np.ones(201), "fixed": np.ones(5)}, "scales": {"fixed": 0.0}}, 201),
        ({"loss": weighed, "data": DATA, "start": {"matrix": np.ones((201, 3)), "vector": np.ones(3)}}, 0),
        ({"loss": weighed, "data": DATA, "covariance": "diagonal"}, 6),
        ({"covariance": "diagonal"}, 6),
    ],
)
def test_the_noise_of_many_numbers_learns_their_variances(arguments: dict[str, Any], n: int) -> None:
    task = function(**{"loss": summed, "start": START, **arguments})
    assert task.layout.is_correlated == (n > 0) == (task.settings.get("optimizer") == "cma")
    if n:
        np.testing.assert_array_equal(task.tensors[FACTOR], np.ones(n, dtype=np.float32))
        assert task.layout.searched.size == n
        assert task.usual_population == 4 + int(3 * math.log(n))


def test_a_covariance_of_too_many_numbers_or_of_an_unknown_shape_is_refused() -> None:
    with pytest.raises(
        ValueError, match="covariance: expected at most 1000 numbers with True, or 'diagonal', got 1001"
    ):
        function(summed, {"x": np.ones(1001)}, covariance=True)
    value: Any
    for value in ("full", 1, 0, np.True_):
        with pytest.raises(ValueError, match=f"covariance: expected True, False or 'diagonal', got {value!r}"):
            function(summed, START, covariance=value)


@pytest.mark.parametrize(("start", "sigma"), [([0.1, -0.2], 0.5), ([3.0, -4.0, 5.0], math.sqrt(50 / 3) / 2)])
def test_correlated_noise_begins_at_half_of_a_usual_distance(start: list[float], sigma: float) -> None:
    assert function(summed, {"x": start}).settings["sigma"] == pytest.approx(sigma)
    assert function(summed, {"x": start}, settings={"sigma": 0.125}).settings["sigma"] == 0.125


@pytest.mark.parametrize(("n", "sigma"), [(100, 0.5), (200, 0.5), (800, 0.25), (20_000, 0.05)])
def test_noise_of_many_numbers_begins_with_members_as_far_away_as_those_of_200(n: int, sigma: float) -> None:
    task = function(summed, {"x": np.zeros(n)}, covariance="diagonal")
    assert task.settings["sigma"] == pytest.approx(sigma)
    assert function(summed, {"x": np.zeros(n)}, settings={"sigma": 0.125}).settings["sigma"] == 0.125


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_function_is_not_shown_the_factor(vectorized: bool) -> None:
    seen = list[list[str]]()

    def loss(arrays: Arrays) -> Any:  # noqa: ANN401
        seen.append([*arrays])
        return arrays["vector"].sum(axis=-1)

    task = function(loss, START, vectorized=vectorized)
    losses_of(task, NO_ROWS)
    task.evaluate(flat_weights(task.tensors), threads=1)
    assert seen
    assert all(names == ["matrix", "vector"] for names in seen)

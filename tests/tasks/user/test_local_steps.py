import math
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.perturbation import LocalSteps, Perturbation
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.blocks import drawn_rows, group_words
from fedlearn.tasks.passes import Passes
from fedlearn.tasks.task import Batch, LossGradients, NoGradientError
from fedlearn.tasks.user.local_steps import local_steps
from fedlearn.tasks.user.task_objective import LOCAL_BYTES, TaskObjective
from tests.tasks.counting import CountingTask

LAYOUT = ParameterLayout((TensorSpec("a", (2, 3)), TensorSpec("b", (4,))))
WEIGHTS = np.linspace(-1.0, 1.0, LAYOUT.size, dtype=np.float32)
TARGET = np.cos(np.arange(LAYOUT.size), dtype=np.float32)
DATA = {"x": np.arange(50.0)}
SEED = 9

Gradients = Callable[[Float32Array, int], LossGradients]


def towards_target(own: Float32Array, number: int) -> LossGradients:
    """The gradient of half the squared distance, which grows from step to step."""
    loss = (number + 1) * 0.5 * float(((own - TARGET) ** 2).sum())
    return LossGradients(np.array([loss], dtype=np.float32), (number + 1) * (own - TARGET))


def steps_of(optimizer: AnyOptimizer, n_steps: int, gradients: Gradients = towards_target) -> LossGradients:
    return local_steps(LAYOUT, WEIGHTS, LocalSteps(optimizer, 1), gradients, n_members=n_steps)


def test_steps_by_gradient_descent_are_those_of_a_loop() -> None:
    found = steps_of(Sgd(0.1, 0.0), 4)
    own, losses = WEIGHTS.astype(np.float64), []
    for number in range(4):
        each = towards_target(own.astype(np.float32), number)
        losses.append(each.losses[0])
        own -= 0.1 * each.total
    np.testing.assert_allclose(found.losses, losses, rtol=1e-6)
    np.testing.assert_allclose(found.total, WEIGHTS - own, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_gradients_of_any_size_keep_their_precision(scale: float) -> None:
    def gradients(own: Float32Array, number: int) -> LossGradients:
        del own, number
        return LossGradients(np.ones(1, dtype=np.float32), np.float32(scale) * TARGET)

    found = steps_of(Sgd(0.1 / scale, 0.0), 1, gradients)
    np.testing.assert_allclose(found.total, 0.1 * TARGET, atol=3e-7)


def test_the_optimizer_begins_anew_and_the_shared_weights_stay() -> None:
    before = WEIGHTS.copy()
    one, two = (steps_of(Adam(0.01), 3) for _ in range(2))
    np.testing.assert_array_equal(one.total, two.total)
    np.testing.assert_array_equal(WEIGHTS, before)
    assert np.abs(one.total).max() > 0.02


@pytest.mark.parametrize("size", [0.0, 1e-44])
def test_gradients_that_are_as_good_as_zero_lead_nowhere(size: float) -> None:
    def gradients(own: Float32Array, number: int) -> LossGradients:
        del number
        return LossGradients(np.ones(1, dtype=np.float32), np.full_like(own, size))

    found = steps_of(Adam(0.01), 3, gradients)
    np.testing.assert_array_equal(found.losses, np.ones(3, dtype=np.float32))
    assert not found.total.any()


@pytest.mark.parametrize("broken", [0, 2])
def test_steps_with_a_loss_that_is_not_finite_count_for_nothing(broken: int) -> None:
    def gradients(own: Float32Array, number: int) -> LossGradients:
        assert number <= broken
        found = towards_target(own, number)
        if number < broken:
            return found
        return LossGradients(np.full(1, np.inf, dtype=np.float32), np.zeros_like(own))

    found = steps_of(Sgd(0.1, 0.0), 3, gradients)
    assert np.isinf(found.losses).tolist() == [True] * 3
    assert not found.total.any()


def test_steps_that_end_beyond_what_a_float_holds_count_for_nothing() -> None:
    found = steps_of(Sgd(3e38, 0.0), 1)
    assert np.isinf(found.losses).all()
    assert not found.total.any()


class Pulled(CountingTask):
    """Each batch pulls every weight towards the mean of its rows."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        means = [float(rows.mean()) for rows in batch.rows["x"]]
        losses = np.array([0.5 * ((weights - mean) ** 2).sum() for mean in means], dtype=np.float32)
        return LossGradients(losses, np.sum([weights - mean for mean in means], axis=0).astype(np.float32))


class Unfed(CountingTask):
    """Its losses are its seeds."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        assert batch.rows == {}
        return LossGradients(np.array(batch.seeds, dtype=np.float32), weights)


LOCAL = Perturbation(0.0, 0, "nothing", unit_bits=20, local_steps=LocalSteps(Sgd(0.1, 0.0), 1))
N_STEPS = 3


@pytest.fixture
def evaluate() -> Callable[[int, int], TrialResults]:
    """The results of some groups, of local steps from weights of zero."""
    objective = TaskObjective(Pulled({"w": np.zeros(5, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)

    def evaluated(first_group: int, n_groups: int) -> TrialResults:
        trials = Trials(2, LOCAL, N_STEPS, first_group * N_STEPS, n_groups * N_STEPS)
        return objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, trials, threads=1)

    return evaluated


def sum_of(results: TrialResults) -> Float32Array:
    layout = ParameterLayout((TensorSpec("w", (5,)),))
    return decode_estimate(layout, results.estimate).astype(np.float32) / np.float32(2.0**20)


def test_each_step_of_a_group_has_rows_of_its_own(evaluate: Callable[[int, int], TrialResults]) -> None:
    rows = drawn_rows(DATA, group_words(SEED, 2, 2 * N_STEPS, N_STEPS, 4))["x"]
    own, losses = 0.0, []
    for number in range(N_STEPS):
        losses.append(2.5 * (own - rows[number].mean()) ** 2)
        own -= 0.1 * (own - rows[number].mean())
    results = evaluate(2, 1)
    np.testing.assert_allclose(results.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(sum_of(results), np.full(5, -own), rtol=0.02)
    assert len({*rows.mean(axis=1)}) == N_STEPS


def test_members_see_their_places_of_passes_over_the_data_with_local_steps_and_without() -> None:
    seen: list[Batch] = []

    class Seeing(Pulled):
        def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
            seen.append(batch)
            return super().loss_gradients(weights, batch)

    objective = TaskObjective(Seeing({"w": np.zeros(5, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)
    passes = msgspec.structs.replace(LOCAL, pass_members=6)
    whole = msgspec.structs.replace(passes, local_steps=None)
    for perturbation, size in ((whole, 1), (passes, N_STEPS)):
        seen.clear()
        trials = Trials(2, perturbation, size, 3, 3)
        objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, trials, threads=1)
        rows = np.concatenate([batch.rows["x"].reshape(-1) for batch in seen])
        places = Passes(SEED).rows((2 * 6 + 3) * 4, 3 * 4, n_rows=len(DATA["x"]))
        np.testing.assert_array_equal(rows, DATA["x"][places])
        seeds = [seed for batch in seen for seed in batch.seeds]
        assert seeds == group_words(SEED, 2, 3, 3, 4)[:, 0].tolist()


def test_passes_over_no_data_are_seeds_alone() -> None:
    objective = TaskObjective(Unfed({"w": np.zeros(5, dtype=np.float32)}, batch_size=4), seed=SEED)
    passes = msgspec.structs.replace(LOCAL, local_steps=None, pass_members=6)
    found = objective.gradient_sum(np.zeros(5, dtype=np.float32), {}, Trials(2, passes, 1, 3, 3), threads=1)
    assert found.losses.tolist() == group_words(SEED, 2, 3, 3, 4)[:, 0].astype(np.float32).tolist()


def test_groups_add_up_and_each_begins_at_the_shared_weights(evaluate: Callable[[int, int], TrialResults]) -> None:
    both, one, two = evaluate(0, 2), evaluate(0, 1), evaluate(1, 1)
    np.testing.assert_array_equal(both.losses, np.concatenate([one.losses, two.losses]))
    np.testing.assert_allclose(sum_of(both), sum_of(one) + sum_of(two), rtol=0.02)


@pytest.mark.parametrize("n_members", [2, 4])
def test_a_step_takes_the_mean_gradient_of_its_members(n_members: int) -> None:
    objective = TaskObjective(Pulled({"w": np.zeros(5, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)
    local = msgspec.structs.replace(LOCAL, local_steps=LocalSteps(Sgd(0.1, 0.0), n_members))
    results = objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, Trials(2, local, 4, 4, 4), threads=1)
    means = drawn_rows(DATA, group_words(SEED, 2, 4, 4, 4))["x"].mean(axis=1).reshape(-1, n_members)
    own, losses = 0.0, []
    for each in means:
        losses += [2.5 * (own - mean) ** 2 for mean in each]
        own -= 0.1 * (own - each.mean())
    np.testing.assert_allclose(results.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(sum_of(results), np.full(5, -own), rtol=0.02)
    local = msgspec.structs.replace(LOCAL, local_steps=LocalSteps(Sgd(0.1, 0.0), 3))
    with pytest.raises(ValueError, match="group_size: expected a multiple of 3, got 4"):
        objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, Trials(2, local, 4, 4, 4), threads=1)


def test_gradients_without_local_steps_have_groups_of_one() -> None:
    objective = TaskObjective(Pulled({"w": np.zeros(5, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)
    gradients = msgspec.structs.replace(LOCAL, local_steps=None)
    with pytest.raises(ValueError, match="group_size: expected 1 without local steps, got 3"):
        objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, Trials(2, gradients, 3, 0, 3), threads=1)


def test_a_task_without_a_gradient_takes_no_local_steps() -> None:
    objective = TaskObjective(CountingTask({"w": np.zeros(5, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)
    with pytest.raises(NoGradientError):
        objective.gradient_sum(np.zeros(5, dtype=np.float32), DATA, Trials(2, LOCAL, 3, 0, 3), threads=1)


def test_memory_counts_a_groups_own_weights_and_every_steps_rows() -> None:
    class Heavy(Pulled):
        backward_bytes = 1_000_000

    objective = TaskObjective(Heavy({"w": np.zeros(10_000, dtype=np.float32)}, DATA, batch_size=4), seed=SEED)
    gradients = msgspec.structs.replace(LOCAL, local_steps=None)
    plain = objective.trial_bytes(DATA, Trials(0, gradients, 1, 0, 6), threads=1)
    local = objective.trial_bytes(DATA, Trials(0, LOCAL, 3, 0, 6), threads=1)
    assert local - plain == LOCAL_BYTES * 10_000 - 5 * 1_000_000  # one backward pass at a time
    assert math.isclose(plain, 6 * (objective._row_bytes(DATA) + 1_000_000) + 48 * 10_000)

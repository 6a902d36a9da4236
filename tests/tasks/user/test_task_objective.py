from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns, group_words, row_numbers
from fedlearn.tasks.task import Batch, LossGradients, flat_weights
from fedlearn.tasks.user import task_objective as task_objective_module
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.es.replicas import update_of
from tests.tasks.counting import CountingTask

SEED = 13
TENSORS = {
    "matrix": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
    "vector": np.ones(5, dtype=np.float32),
}
DATA: Columns = {"x": np.arange(10.0), "label": np.arange(10)}
TRIALS = Trials(7, Perturbation(0.5, 2), group_size=4, first_member=24, n_members=12)


def losses_of(task: CountingTask, trials: Trials = TRIALS, *, data: Columns | None = None) -> Float32Array:
    objective = TaskObjective(task, seed=SEED)
    return objective.evaluate(objective.initial_weights(), task.data if data is None else data, trials, threads=1)


def test_its_unit_its_work_and_its_start_are_the_tasks() -> None:
    objective = TaskObjective(CountingTask(TENSORS, batch_size=6), seed=SEED)
    assert (objective.unit, objective.work_per_member) == ("beans", 6)
    np.testing.assert_array_equal(objective.initial_weights(), flat_weights(TENSORS))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_members_loss_is_that_of_its_perturbed_tensors_and_of_its_groups_rows(rank: int) -> None:
    task = CountingTask(TENSORS, DATA)
    trials = msgspec.structs.replace(TRIALS, perturbation=Perturbation(0.5, rank))
    noise = member_noise(task.layout, trials, seed=SEED)
    rows = row_numbers(group_words(SEED, 7, 6, 3, 3), 10)
    expected = [
        sum(perturbed(tensor, entry, member).sum() for tensor, entry in zip(TENSORS.values(), noise, strict=True))
        + DATA["x"][rows[member // 4]].sum()
        for member in range(12)
    ]
    losses = losses_of(task, trials)
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert len(np.unique(losses)) > 6


def test_groups_are_given_their_rows_and_a_seed_of_their_own() -> None:
    task = CountingTask(TENSORS, DATA)
    losses_of(task)
    (batch,) = task.batches
    words = group_words(SEED, 7, 6, 3, 3)
    assert batch.seeds == tuple(words[:, 0].tolist())
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in batch.seeds)
    for name, column in DATA.items():
        np.testing.assert_array_equal(batch.rows[name], column[row_numbers(words, 10)])
        assert batch.rows[name].shape == (3, 3)


def test_without_data_groups_are_given_a_seed_alone() -> None:
    task = CountingTask(TENSORS)
    losses_of(task)
    (batch,) = task.batches
    assert batch.rows == {}
    assert len(set(batch.seeds)) == 3


def test_the_data_are_the_blocks_and_not_the_tasks_own() -> None:
    ours = CountingTask(TENSORS, DATA)
    theirs = {"x": DATA["x"] + 100.0, "label": DATA["label"]}
    np.testing.assert_allclose(losses_of(ours, data=theirs) - losses_of(ours), 300.0, rtol=1e-4)


def test_members_are_evaluated_the_same_whoever_asks_for_them() -> None:
    whole = losses_of(CountingTask(TENSORS, DATA))
    parts = [losses_of(CountingTask(TENSORS, DATA), TRIALS.part(first, n)) for first, n in ((0, 1), (1, 2))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    ("rank", "room", "calls"),
    [
        # A member has 2 x (4 + 3) + 5 = 19 numbers of noise at rank 2, 17 at full rank; a group has four members.
        (2, 4 * 4 * 19 * 3, [3]),
        (2, 4 * 4 * 19 * 3 - 1, [2, 1]),
        (0, 4 * 4 * 17 * 2, [2, 1]),
        (0, 4 * 4 * 17 * 2 - 1, [1, 1, 1]),
        (2, 1, [1, 1, 1]),
    ],
)
def test_as_many_groups_are_evaluated_at_once_as_their_noise_fits_memory(
    monkeypatch: pytest.MonkeyPatch, rank: int, room: int, calls: list[int]
) -> None:
    trials = msgspec.structs.replace(TRIALS, perturbation=Perturbation(0.5, rank))
    whole = losses_of(CountingTask(TENSORS, DATA), trials)
    monkeypatch.setattr(task_objective_module, "NOISE_BYTES", room)
    task = CountingTask(TENSORS, DATA)
    np.testing.assert_array_equal(losses_of(task, trials), whole)
    assert [len(batch.seeds) for batch in task.batches] == calls


def test_losses_that_are_not_one_a_member_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CountingTask(TENSORS)
    monkeypatch.setattr(task, "losses", lambda *_: np.zeros((12, 2)))
    with pytest.raises(ValueError, match=r"losses: expected a number for each of 12 members, got shape \[12, 2\]; a"):
        losses_of(task)


def test_losses_that_are_not_finite_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CountingTask(TENSORS)
    monkeypatch.setattr(task, "losses", lambda *_: [np.nan, np.inf, -np.inf, -1.0] * 3)
    np.testing.assert_array_equal(losses_of(task)[:4], [np.nan, np.inf, -np.inf, -1.0])


def test_the_task_is_told_of_device_and_threads_once_and_when_they_change() -> None:
    task = CountingTask(TENSORS)
    objective = TaskObjective(task, seed=SEED, device="cuda")
    for threads in (2, 2, 0, 0):
        objective.evaluate(objective.initial_weights(), {}, TRIALS, threads=threads)
    assert task.uses == [("cuda", 2), ("cuda", 0)]


def test_a_run_may_have_other_rows_than_its_task() -> None:
    data = {"x": np.arange(10.0), "row": np.arange(10) % 4}
    tasks = [CountingTask(TENSORS, data, batch_size=n_rows) for n_rows in (3, 2)]
    for task in tasks:
        task.reads = {"matrix": "row"}
    given, own = (TaskObjective(task, seed=SEED, batch_size=size) for task, size in zip(tasks, (2, 0), strict=True))
    assert given.measuring("losses").batch_size == 3
    found = [
        (
            objective.batch_size,
            objective.work_per_member,
            objective.evaluate(objective.initial_weights(), data, TRIALS, threads=1).tolist(),
            np.asarray(objective.row_masks(update_of(0), data)).tolist(),
            objective.trial_bytes(data, TRIALS, threads=1),
            objective.mask_bytes(data, 5),
        )
        for objective in (given, own)
    ]
    assert found[0] == found[1]


def test_rows_that_data_name_are_masked() -> None:
    task = CountingTask(TENSORS, {"x": np.arange(10.0), "row": np.full(10, 2)})
    update = update_of(0)
    assert TaskObjective(task, seed=SEED).row_masks(update, task.data) is None
    task.reads = {"matrix": "row"}
    masks = TaskObjective(task, seed=SEED).row_masks(update, task.data)
    assert masks is not None
    assert masks.tolist() == [[0, 0, 1, 0]] * 3


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (DATA, "rows with the columns x float64 [3], label int64 [3]"),
        ({}, "weights without rows of data"),
    ],
)
def test_loss_that_fails_is_told_with_the_task_and_its_rows(
    data: Columns, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = CountingTask(TENSORS, data)
    monkeypatch.setattr(task, "losses", Mock(side_effect=KeyError("imge")))
    with pytest.raises(KeyError) as raised:
        losses_of(task)
    assert raised.value.__notes__ == [f"the loss of a task of kind {task.kind} failed on {columns}"]


class Steep(CountingTask):
    """A task whose gradient is as it was given."""

    gradient: Float32Array

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        return LossGradients(np.ones(len(batch.seeds), dtype=np.float32), self.gradient + 0.0 * weights)


@pytest.mark.parametrize(
    ("gradient", "unit_bits", "expected"),
    [
        ([1.0, -0.25, 2.0**-21, 3 * 2.0**-21, 0.0], 20, [2**20, -(2**18), 0, 2, 0]),  # halves go to the even number
        ([1e30, -1e38, 3e38, 1.0, 0.0], 20, [127 << 24, -127 << 24, 127 << 24, 2**20, 0]),
    ],
)
def test_gradients_are_rounded_to_their_unit_and_cut_where_they_are_too_great(
    gradient: list[float], unit_bits: int, expected: list[int]
) -> None:
    task = Steep({"w": np.zeros(5, dtype=np.float32)}, {"x": np.arange(50.0)}, batch_size=4)
    task.gradient = np.array(gradient, dtype=np.float32)
    objective = TaskObjective(task, seed=1)
    trials = Trials(0, Perturbation(0.0, 0, "nothing", unit_bits=unit_bits), 1, 0, 1)
    results = objective.gradient_sum(objective.initial_weights(), task.data, trials, threads=1)
    # Each number of a vector is a row, which keeps seven of its bits.
    np.testing.assert_allclose(decode_estimate(objective.layout, results.estimate), expected, rtol=0.01)

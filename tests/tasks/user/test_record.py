import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.user.record import RecordedExaminer, RecordedObjective, TaskRecord
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.es.replicas import update_of
from tests.tasks.counting import CountingTask

TRIALS = Trials(7, Perturbation(0.5, 2), group_size=4, first_member=24, n_members=12)
TENSORS = {"matrix": np.ones((4, 3), dtype=np.float32), "vector": np.ones(5, dtype=np.float32)}
DATA = {"x": np.arange(10.0), "row": np.arange(10) % 4}


def reading_task() -> CountingTask:
    task = CountingTask(TENSORS, DATA)
    task.reads, task.scales = {"matrix": "row"}, {"vector": 3.0}
    return task


def record_of(task: CountingTask) -> TaskRecord:
    return TaskRecord(
        layout=task.layout,
        reads=dict(task.reads),
        batch_size=task.batch_size,
        unit=task.unit,
        work_per_member=task.work_per_member,
        identity={"source": "00ff"},
        n_blocks=2,
    )


def test_a_record_reads_back_equal_from_json() -> None:
    record = record_of(reading_task())
    assert msgspec.json.decode(msgspec.json.encode(record), type=TaskRecord) == record


def test_a_recorded_objective_masks_the_rows_that_the_task_would() -> None:
    task, update = reading_task(), update_of(0)
    recorded = RecordedObjective(record_of(task), seed=5)
    assert (recorded.layout, recorded.unit, recorded.work_per_member) == (task.layout, "beans", 3)
    masks = recorded.row_masks(update, DATA)
    assert masks is not None
    np.testing.assert_array_equal(masks, TaskObjective(task, seed=5).row_masks(update, DATA))
    others = RecordedObjective(record_of(task), seed=6).row_masks(update, DATA)
    assert others is not None
    assert not np.array_equal(masks, others)


def test_it_has_neither_a_start_nor_losses() -> None:
    recorded = RecordedObjective(record_of(reading_task()), seed=5)
    with pytest.raises(ValueError, match="task: expected the task's own file for its start"):
        recorded.initial_weights()
    with pytest.raises(ValueError, match="task: expected the task's own file for its losses"):
        recorded.evaluate(np.zeros(17, dtype=np.float32), DATA, TRIALS, threads=1)


def test_its_examiner_shows_losses_as_they_are() -> None:
    examiner = RecordedExaminer(record_of(reading_task()).layout)
    assert examiner.show(-2.5) == ("loss", -2.5)
    assert examiner.validate(np.zeros(17, dtype=np.float32), threads=1) == {}

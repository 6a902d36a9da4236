import msgspec
import numpy as np
import pytest

from fedlearn.tasks.blocks import block_name
from fedlearn.tasks.user.named_task import NamedTask, check_identity, differences
from tests.tasks.counting import CountingTask

TENSORS = {"matrix": np.ones((4, 3), dtype=np.float32), "vector": np.ones(5, dtype=np.float32)}
FROZEN = {"pretrained": np.arange(4, dtype=np.float32)}
SAME = {"source": "aa", "tensors": "bb"}


def identity_of(task: CountingTask | None = None, source: bytes = bytes(16)) -> dict[str, str]:
    return dict(NamedTask(task or CountingTask(TENSORS), "fit.py:task", source).identity)


def changed(task: CountingTask) -> list[str]:
    return differences(identity_of(task), identity_of())


def test_equal_tasks_have_one_identity_wherever_their_file_lies() -> None:
    assert NamedTask(CountingTask(TENSORS), "/elsewhere/fit.py:task", bytes(16)).identity == identity_of()
    assert set(identity_of()) == {"source", "frozen tensors", "tensors"}


def test_the_source_counts() -> None:
    assert differences(identity_of(source=b"x" * 16), identity_of()) == ["source"]
    assert identity_of(source=b"x" * 16)["source"] == "78" * 16


def test_frozen_tensors_count_by_their_content() -> None:
    task = CountingTask(TENSORS)
    task.frozen_arrays = FROZEN
    assert changed(task) == ["frozen tensors"]
    assert identity_of(task)["frozen tensors"] == block_name(FROZEN).hex()
    assert identity_of()["frozen tensors"] == ""


def test_frozen_tensors_need_not_have_as_many_rows_as_each_other() -> None:
    task = CountingTask(TENSORS)
    task.frozen_arrays = {"a": np.ones((2, 3), np.float32), "b": np.ones((), np.float32)}
    assert changed(task) == ["frozen tensors"]


def test_names_shapes_scales_masks_and_what_they_follow_from_count() -> None:
    named, shaped, scaled, reading, other_column, batched = (CountingTask(TENSORS) for _ in range(6))
    named._tensors = {"matrix": TENSORS["matrix"], "other": TENSORS["vector"]}
    shaped._tensors = {"matrix": TENSORS["matrix"].reshape(3, 4), "vector": TENSORS["vector"]}
    scaled.scales = {"vector": 2.0}
    reading.reads = {"matrix": "row"}
    other_column.reads = {"matrix": "column"}
    batched.batch_size = 4
    tasks = [named, shaped, scaled, reading, other_column, batched]
    assert all(changed(task) == ["tensors"] for task in tasks)
    assert len({identity_of(task)["tensors"] for task in tasks}) == 6


def test_where_learning_starts_and_the_data_do_not_count() -> None:
    task = CountingTask({name: 2 * tensor for name, tensor in TENSORS.items()}, {"x": np.ones(3)})
    assert changed(task) == []


def test_only_what_the_other_side_names_is_compared() -> None:
    assert differences(SAME, {}) == []
    assert differences({}, SAME) == ["source", "tensors"]
    assert differences(SAME, {**SAME, "data": "cc"}) == ["data"]
    assert differences({**SAME, "data": "cc"}, SAME) == []


def test_what_differs_from_the_servers_is_named() -> None:
    check_identity(SAME, SAME)
    with pytest.raises(ValueError, match="task: expected the server's source, got other ones; take the same version"):
        check_identity({**SAME, "source": "cc"}, SAME)
    with pytest.raises(ValueError, match="expected the server's source and tensors, got"):
        check_identity({}, SAME)


def test_an_identity_travels() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(identity_of())) == identity_of()

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.hub.bodies import Asked, Training
from fedlearn.hub.jobs.spec import ORDER_FILE, TASK_FILE, TASK_SOURCE, JobSpec, local_steps_of, parts_of, read_task
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.task import Task
from tests.hub.digit_files import write_mnist

pytest.importorskip("torch")

LAYERS = {"layer_sizes": [784, 16, 10]}


def ordered(
    folder: Path,
    model: dict[str, Any],
    training: Training | None = None,
    *,
    seats: int = 0,
    n_devices: int = 1,
    **dataset: Any,  # noqa: ANN401
) -> Path:
    asked = msgspec.convert({"model_config": model, "dataset_config": dataset}, Asked)
    order = JobSpec(
        asked=asked, training=training or Training(), data=str(folder / "data"), seats=seats, n_devices=n_devices
    )
    (folder / "data").mkdir(exist_ok=True)
    (folder / ORDER_FILE).write_bytes(msgspec.json.encode(order))
    return folder / ORDER_FILE


def made(path: Path) -> tuple[Task, str]:
    said: list[str] = []
    task = read_task(path, say=said.append)
    return task, "\n".join(said)


def shapes(task: Task) -> list[tuple[int, ...]]:
    return [tensor.shape for tensor in task.tensors.values()]


def test_small_digits_take_the_place_of_mnist_and_that_is_said(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    task, said = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=256))
    assert shapes(task)[0] == (16, 64)
    assert "takes the 64 pixels of scikit-learn's digits in place of 784" in said
    assert (task.settings["steps"], task.settings["local_steps"]) == (10, 6)  # 1438 images in batches of 256
    assert "epochs: 10 passes over the data, each 6 steps of 256 rows" in said


def test_a_classifier_takes_the_steps_of_plain_sgd(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data" / "MNIST")
    task, said = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=16))
    rule = {"optimizer": "sgd", "beta1": 0.0, "learning_rate": 0.1, "learning_rate_schedule": "constant"}
    rule |= {"measure": "gradients", "population_limit": 1, "max_population": 1}
    assert rule.items() <= task.settings.items()
    assert "learning rate: 0.1 (sgd)" in said


def test_a_lone_device_takes_many_steps_between_two_exchanges(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data" / "MNIST", n_training=38)
    task, said = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=2))
    local = {"local_steps": 10, "steps": 20, "sample_every": 2}
    assert local.items() <= task.settings.items()
    assert "10 passes over the data, each 20 steps of 2 rows" in said  # 19 are 38 rows
    assert "exchanges: one after 10 steps" in said


def test_devices_that_share_a_batch_exchange_each_step(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data" / "MNIST")
    for n_devices, seats in ((2, 0), (1, 2)):
        task, said = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=2, n_devices=n_devices, seats=seats))
        assert {"local_steps": 1, "steps": 200, "sample_every": 20}.items() <= task.settings.items()
        assert "exchanges" not in said


@pytest.mark.parametrize(
    ("per_epoch", "products", "expected"),
    [(235, 3e7, 14), (240, 3e7, 16), (12, 3e7, 12), (1, 3e7, 1), (235, 1e9, 4), (235, 1e10, 1)],
)
def test_a_pass_over_the_data_is_nearly_whole_exchanges(per_epoch: int, products: float, expected: int) -> None:
    assert local_steps_of(per_epoch, products) == expected


@pytest.mark.parametrize(
    ("batch_size", "n_devices", "expected"), [(256, 1, (1, 256)), (256, 5, (8, 32)), (50, 2, (2, 25)), (3, 40, (3, 1))]
)
def test_devices_share_the_rows_of_one_batch(batch_size: int, n_devices: int, expected: tuple[int, int]) -> None:
    parts = parts_of(batch_size, n_devices)
    assert (parts.n_members, parts.batch_size) == expected


def test_a_model_that_is_split_takes_the_steps_of_one_that_is_not(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data" / "MNIST")
    whole, _ = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=16))
    task, said = made(ordered(tmp_path, LAYERS, name="MNIST", batch_size=16, seats=2))
    exchanges = {"local_steps", "steps", "sample_every"}
    assert {task.settings[key] == whole.settings[key] for key in task.settings.keys() - exchanges} == {True}
    assert [each.settings["steps"] for each in (task, whole)] == [30, 10]
    assert [each.settings["local_steps"] for each in (task, whole)] == [1, 3]
    assert "pass through the devices by 16" in said


def test_files_of_mnist_are_trained_on_where_they_are(tmp_path: Path) -> None:
    path = ordered(tmp_path, LAYERS, Training(epochs=2, learning_rate=0.1), name="MNIST", path="mnist", batch_size=16)
    write_mnist(tmp_path / "data" / "mnist")
    task, said = made(path)
    assert shapes(task)[0] == (16, 784)
    assert "in place of" not in said
    assert (task.settings["steps"], task.settings["learning_rate"], task.batch_size) == (2, 0.1, 16)
    assert "learning rate: 0.1" in said
    assert "quantization: 8 bits" in said


def test_a_batch_is_no_larger_than_the_data(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data" / "mnist")
    task, _ = made(ordered(tmp_path, LAYERS, name="MNIST", path="mnist", batch_size=1000))
    assert (task.batch_size, task.settings["steps"]) == (40, 10)


def test_an_epoch_of_a_text_is_a_pass_over_its_bytes(tmp_path: Path) -> None:
    path = ordered(tmp_path, {"type": "transformer"}, Training(epochs=3), source="text.txt")
    (tmp_path / "data" / "text.txt").write_text("the quick brown fox\n" * 800)
    task, said = made(path)
    assert task.settings["steps"] == 3 * 29  # 899 windows overlap by half
    assert task.settings["optimizer"] == "muon"
    assert "counting bytes alone reaches" in said
    assert task.data["tokens"].shape[1] == 33
    rated, _ = made(ordered(tmp_path, {"type": "transformer"}, Training(learning_rate=0.001), source="text.txt"))
    assert (rated.settings["optimizer"], rated.settings["learning_rate"]) == ("adam", 0.001)


def test_a_text_that_is_gone_or_too_short_is_told(tmp_path: Path) -> None:
    path = ordered(tmp_path, {"type": "transformer"}, source="text.txt")
    with pytest.raises(ValueError, match=r"dataset_config\.source: expected a name within"):
        read_task(path)
    (tmp_path / "data" / "text.txt").write_text("short")
    with pytest.raises(ValueError, match="expected a text of 4000 bytes or more, got 5"):
        read_task(path)


def test_the_file_of_a_job_is_a_task_that_travels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ordered(tmp_path, LAYERS, name="MNIST", path="mnist")
    write_mnist(tmp_path / "data" / "mnist")
    (tmp_path / TASK_FILE).write_text(TASK_SOURCE)
    task = load_task(f"{tmp_path / TASK_FILE}:task").task
    assert len(task.as_graph()) < 4000
    assert "learning rate: 0.1" in capsys.readouterr().out

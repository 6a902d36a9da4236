from typing import Any

import pytest

from fedlearn.hub.bodies import Registration
from fedlearn.hub.devices import Device
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.jobs.speed import TERA, operations_of, speeds_of
from tests.board.folders import status_of, volunteer


def record_of(model: dict[str, Any], n_devices: int = 1, seats: int = 0, **dataset: Any) -> JobRecord:  # noqa: ANN401
    asked = {"model_config": model, "dataset_config": dataset}
    return JobRecord(job_id=1, asked=asked, status="training", n_devices=n_devices, seats=seats)


def test_operations_of_a_classifier_are_six_a_weight_and_row() -> None:
    layers = {"layer_sizes": [784, 16, 10]}
    weights = 784 * 16 + 16 * 10
    assert operations_of(record_of(layers, batch_size=8)) == 6 * weights * 8
    assert operations_of(record_of(layers, n_devices=2, batch_size=8)) == 6 * weights * 4
    assert operations_of(record_of(layers, n_devices=2, seats=2, batch_size=8)) == 6 * weights * 4


def test_operations_of_a_transformer_grow_with_all_its_sizes() -> None:
    base = {"type": "transformer", "width": 32, "context": 32, "n_layers": 1}
    usual = operations_of(record_of(base, batch_size=8))
    assert usual == pytest.approx(6 * (12 * 32**2 + 64 * 32) * 32 * 8)
    assert operations_of(record_of(base, batch_size=16)) == 2 * usual
    assert operations_of(record_of(base | {"context": 64}, batch_size=8)) == 2 * usual


def test_of_a_task_nothing_is_known() -> None:
    assert operations_of(record_of({"type": "task"})) == 0.0


def test_shares_of_devices_and_of_the_hubs_own_machine_add_up() -> None:
    record = record_of({"layer_sizes": [784, 10]}, batch_size=8)
    each = operations_of(record) / TERA
    volunteers = [volunteer(name=name, members_per_s=speed) for name, speed in (("a", 1.0), ("a", 2.0), ("own", 4.0))]
    devices = [
        Device(device_id=number, asked=Registration(name="a"), address="", seen=0.0, job_id=1) for number in (1, 2, 3)
    ]
    status = status_of(volunteers=tuple(volunteers))
    found = speeds_of(record, status, devices)
    assert found == {1: each, 2: 2 * each, None: 4 * each}
    record.status = "completed"
    assert speeds_of(record, status, devices) == {}

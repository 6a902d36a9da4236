"""The speed at which jobs are trained: operations of their members' trials, as their servers report them."""

from typing import Any

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.hub.bodies import Asked
from fedlearn.hub.devices import Device
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.jobs.spec import CLASSIFIER_BATCH, TEXT_BATCH, layers_of, weights_between

TERA = 1e12
OPERATIONS = 2
"""Operations for each weight and row: a product and a sum. Noise and its corrections are not counted."""

ALPHABET = 64
"""The number of different bytes in a usual text."""


def operations_of(asked: Asked) -> float:
    """Floating-point operations of one member's trial; 0 for a task of which the hub knows nothing."""
    model, dataset = asked.model_config, asked.dataset_config
    if model.kind == "mlp":
        return float(OPERATIONS * weights_between(layers_of(asked)) * (dataset.batch_size or CLASSIFIER_BATCH))
    if model.kind == "transformer":
        weights = 12 * model.n_layers * model.width**2 + ALPHABET * model.width
        return float(OPERATIONS * weights * model.context * (dataset.batch_size or TEXT_BATCH))
    return 0.0


def teraflops_of(record: JobRecord, status: RunStatus | None, device: Device | None = None) -> float:
    """The speed at which a job is trained at present, by all devices or by one."""
    if status is None or record.status != "training":
        return 0.0
    per_member = operations_of(msgspec.convert(record.asked, Asked))
    if device is None:
        return status.members_per_s * per_member / TERA
    name = device.asked.name
    speeds = [v.members_per_s or 0.0 for v in status.volunteers if name and v.name == name]
    return sum(speeds) * per_member / TERA


def device_speed(device: Device, record: JobRecord | None, status: RunStatus | None) -> dict[str, Any]:
    """The entry of a device."""
    return {
        "device_id": device.device_id,
        "ip": device.asked.ip or device.address,
        "port": device.asked.port,
        "job_id": device.job_id,
        "teraflops": 0.0 if record is None else teraflops_of(record, status, device),
    }

"""Jobs and devices as answers show them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.hub.bodies import Asked
from fedlearn.hub.devices import Device
from fedlearn.hub.jobs.records import JobRecord


def job_view(
    record: JobRecord, status: RunStatus | None, devices: Sequence[dict[str, Any]], missing: int
) -> dict[str, Any]:
    """A job: the request, the state, and what its run has measured."""
    return {
        "job_id": str(record.job_id),
        "status": record.status,
        "devices": devices,
        "seats": record.seats,
        "missing": missing,
        "dataset_config": {},
        **record.asked,
        "note": record.note,
        "reason": record.reason,
        "run": record.run,
        "epochs": record.epochs,
        "step": status.step if status is not None else 0,
        "steps": status.steps if status is not None else 0,
        "loss": status.loss if status is not None else None,
        "validation": status.validation if status is not None else {},
        "is_classifier": msgspec.convert(record.asked, Asked).model_config.kind == "mlp",
    }


def device_view(device: Device, held: Sequence[str]) -> dict[str, Any]:
    """A device and the tensors that it holds."""
    return named(device) | {"name": device.asked.name, "layers": held, "verbs": list(device.asked.verbs)}


def named(device: Device) -> dict[str, Any]:
    """A device by its number and addresses, with its job."""
    job_id = None if device.job_id is None else str(device.job_id)
    asked = device.asked
    return {"device_id": device.device_id, "ip": asked.ip or device.address, "port": asked.port, "job_id": job_id}


def speed_views(devices: Sequence[Device], speeds: dict[tuple[int, int | None], float]) -> list[dict[str, Any]]:
    """The teraflops of each device, and of the hub's own machine for each job that has none; together all of them."""
    of_devices = [
        named(device) | {"teraflops": speeds.get((device.job_id or 0, device.device_id), 0.0)} for device in devices
    ]
    of_hub = [
        {"device_id": None, "ip": "", "port": 0, "job_id": str(job_id), "teraflops": speed}
        for (job_id, device_id), speed in speeds.items()
        if device_id is None
    ]
    return [*of_devices, *of_hub]

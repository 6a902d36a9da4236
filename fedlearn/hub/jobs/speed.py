"""The speed at which jobs are trained: operations of their members' trials, as their servers report them."""

from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.hub.bodies import Asked
from fedlearn.hub.devices import Device
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.jobs.spec import CLASSIFIER_BATCH, TEXT_BATCH, parts_of, weights_between

TERA = 1e12
FORWARD, BACKWARD = 2, 4
"""Operations for each weight and row: a product and a sum, and both twice for gradients of inputs and weights. All else
is not counted."""

ALPHABET = 64
"""The number of different bytes in a usual text."""


def operations_of(record: JobRecord) -> float:
    """Floating-point operations of one member; 0 for a task of which the hub knows nothing."""
    asked = msgspec.convert(record.asked, Asked)
    model, dataset = asked.model_config, asked.dataset_config
    if model.kind == "task":
        return 0.0
    is_text = model.kind == "transformer"
    rows = dataset.batch_size or (TEXT_BATCH if is_text else CLASSIFIER_BATCH)
    weights = weights_between(model.layer_sizes)
    if is_text:
        weights, rows = 12 * model.n_layers * model.width**2 + ALPHABET * model.width, rows * model.context
    return float((FORWARD + BACKWARD) * weights * rows) / parts_of(rows, record.n_devices).n_members


def speeds_of(record: JobRecord, status: RunStatus | None, devices: Sequence[Device]) -> dict[int | None, float]:
    """Teraflops of each device of a job, by its number, and of the hub's own machine, by None; together the job's.

    Devices are told apart by their names, those of one name by the order in which they came.
    """
    if status is None or record.status != "training":
        return {}
    by_name: dict[str, deque[float]] = defaultdict(deque)
    for volunteer in status.volunteers:
        by_name[volunteer.name].append((volunteer.members_per_s or 0.0) * operations_of(record) / TERA)
    found: dict[int | None, float] = {
        device.device_id: named.popleft() for device in devices if (named := by_name[device.asked.name])
    }
    if rest := sum(sum(named) for named in by_name.values()):
        found[None] = rest
    return found

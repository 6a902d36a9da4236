"""The parts of a model that each device of a job holds, as the job's server reports for its volunteers."""

from collections import defaultdict, deque
from collections.abc import Sequence

from fedlearn.coordination.status import RunStatus
from fedlearn.hub.bodies import Asked
from fedlearn.hub.devices import Device
from fedlearn.hub.jobs.spec import CLASSIFIER_BATCH, TEXT_BATCH

ALL = "all"
"""Entry that stands for the whole model in place of names."""


def held_by(devices: Sequence[Device], status: RunStatus | None) -> dict[int, tuple[str, ...]]:
    """Names of the tensors that each device holds, by its number; none before it has joined.

    Devices are told apart by their names, those of one name by the order in which they came.
    """
    by_name: dict[str, deque[tuple[str, ...]]] = defaultdict(deque)
    for volunteer in status.volunteers if status is not None and status.state != "ended" else ():
        if volunteer.phase == "seated":
            by_name[volunteer.name].append(volunteer.tensors)
        elif volunteer.phase == "ready":
            by_name[volunteer.name].append((ALL,))
    return {device.device_id: named.popleft() if (named := by_name[device.asked.name]) else () for device in devices}


def n_missing(seats: int, status: RunStatus | None) -> int:
    """Number of volunteers that the crews of so many seats lack; where no crew is left, all but those that wait for
    one."""
    if not seats or status is None or status.state == "ended":
        return 0
    n_seated = sum(bool(volunteer.tensors) for volunteer in status.volunteers)
    n_waiting = sum(volunteer.phase == "seated" for volunteer in status.volunteers) - n_seated
    # As long as none is seated somebody lacks, if only one who lends enough memory.
    return -n_seated % seats if n_seated else max(seats - n_waiting, 1)


def step_bytes(asked: Asked, seats: int) -> int:
    """The most bytes of activations, and of the derivatives that come back, that travel between so many devices in a
    step, as float32; 0 where the hub does not know the model."""
    model, rows = asked.model_config, asked.dataset_config.batch_size
    if model.kind == "task":
        return 0
    if model.kind == "transformer":
        cuts, rows = [model.width] * (seats - 1), (rows or TEXT_BATCH) * model.context
    else:
        cuts, rows = sorted(model.layer_sizes[1:-1])[-(seats - 1) :], rows or CLASSIFIER_BATCH
    return 2 * 4 * rows * sum(cuts)

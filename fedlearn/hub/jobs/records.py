"""A job's folder: the request, the state, the log. Only `job.json` changes."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from fedlearn.hub.bodies import Training
from fedlearn.storage.durable import make_folder, write_durably

Status = Literal["created", "initialized", "training", "completed", "stopped", "failed"]


class Process(msgspec.Struct, frozen=True):
    """A server that was started for a job, so that a restarted hub recognizes it."""

    pid: int
    created: float
    """The time at which the system started the process, which tells it from a later one of the same number."""


class JobRecord(msgspec.Struct, kw_only=True):
    """A job, as `job.json` keeps it."""

    job_id: int
    asked: dict[str, Any]
    """`model_config` and `dataset_config` of the request."""
    status: Status = "created"
    note: str = ""
    """Notices where the hub deviates from the request."""
    reason: str = ""
    """The reason why the job was stopped or failed."""
    training: Training | None = None
    seats: int = 0
    """Devices that hold one replica between them; 0: each holds a whole one."""
    is_chosen: bool = False
    """Whether its operator chose its devices, so that it is given no others."""
    n_devices: int = 1
    """Number of devices with which its training began: they share the rows of a batch."""
    epochs: int = 0
    """Passes over the data that its run has, and had before it was trained on."""
    steps: int = 0
    """Steps of a run that is trained on; 0: those that it began with."""
    n_local: int = 0
    """The number of volunteers that its server starts on the hub's machine."""
    run: str = ""
    """Name of its run; empty before there is one."""
    port: int = 0
    """The port on which its server listens, or listened last."""
    process: Process | None = None


class JobFolder(msgspec.Struct, frozen=True):
    """The folder of a job's files."""

    path: Path

    @property
    def record(self) -> Path:
        """The JobRecord."""
        return self.path / "job.json"

    @property
    def log(self) -> Path:
        """The log of the hub and the job's server."""
        return self.path / "job.log"

    def save(self, record: JobRecord) -> None:
        """Replaces the record in its file as a whole.

        Raises:
            StorageError: the disk refuses.
        """
        make_folder(self.path)
        write_durably(self.record, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        with open(self.log, "a", encoding="utf-8", errors="replace") as log:
            log.write(f"hub: {text}\n")


def find_jobs(root: Path) -> tuple[dict[int, JobRecord], list[str]]:
    """The jobs in the folder, by their numbers, and sentences about those that can't be read."""
    found, problems = {}, []
    numbers = sorted(int(path.name) for path in root.iterdir() if path.name.isdecimal()) if root.is_dir() else []
    for number in numbers:
        path = JobFolder(root / str(number)).record
        try:
            record = msgspec.json.decode(path.read_bytes(), type=JobRecord)
        except FileNotFoundError:
            continue  # the hub died before the job was there
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"{path}: expected a job, got: {error}; it is left out")
            continue
        if record.job_id == number:
            found[number] = record
        else:
            problems.append(f"{path}: expected job {number}, got {record.job_id}; it is left out")
    return found, problems

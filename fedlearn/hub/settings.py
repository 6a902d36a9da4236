"""The folders and addresses of a hub, and the arguments of its jobs' servers."""

import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Self

import msgspec

from fedlearn.config import ConfigError, ServerSettings
from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.hub.files import task_below
from fedlearn.hub.jobs.records import JobFolder, JobRecord
from fedlearn.hub.jobs.spec import STEPS_PER_EPOCH, TASK_FILE
from fedlearn.net.address import is_loopback
from fedlearn.server.listening import listen
from fedlearn.server.security import ServerSecurity, open_security
from fedlearn.storage.credentials import keep_secret
from fedlearn.storage.durable import make_folder

OPERATOR_TOKEN_FILE = "hub-token"
DEVICE_TOKEN_FILE = "device-token"
SAMPLE_S = "10"
"""Seconds between two examinations of a model, beside those at the end of each epoch."""


class HubSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The settings of one hub."""

    folder: Path
    data: Path
    tasks: Path
    host: str
    public_host: str
    is_open_on_loopback: bool
    """Whether requests from this machine need no token."""
    operator_token: str
    device_token: str
    security: ServerSecurity
    """The security of the jobs' servers, which is the same for all."""
    job_ports: range = range(0)
    """The ports of the jobs' servers; empty: any."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        data: Path | None,
        tasks: Path | None,
        host: str,
        public_host: str,
        tokens: str,
        job_ports: range = range(0),
    ) -> Self:
        """The settings of a hub; makes the folders that are not there yet.

        Raises:
            ValueError: a folder that was named does not exist.
            StorageError: a folder cannot be made.
            OSError: a file cannot be read or made.
        """
        for path in (folder / "jobs", folder / "runs"):
            make_folder(path)
        for given, name in ((data, "data"), (tasks, "tasks")):
            if given is None:
                make_folder(folder / name)
            elif not given.is_dir():
                raise ValueError(f"--{name}: expected an existing folder, got {str(given)!r}")
        return cls(
            folder=folder,
            data=data or folder / "data",
            tasks=tasks or folder / "tasks",
            host=host,
            public_host=public_host,
            is_open_on_loopback=tokens == "auto",
            operator_token=_token(folder / OPERATOR_TOKEN_FILE),
            device_token=_token(folder / DEVICE_TOKEN_FILE),
            security=open_security(ServerSettings(host=host, public_host=public_host), folder / "runs", {}),
            job_ports=job_ports,
        )

    @property
    def jobs(self) -> Path:
        """The folder that has a folder for each job."""
        return self.folder / "jobs"

    @property
    def runs(self) -> Path:
        """The run folders of all jobs."""
        return self.folder / "runs"

    def port_for(self, record: JobRecord, taken: Collection[int]) -> int:
        """The port for a job's server: its last one, if that is free; 0: any.

        `taken` are the ports of other servers, which may not listen yet.

        Raises:
            RefusedError: no port is free of those that jobs have.
        """
        candidates: list[int] = list(self.job_ports)
        if record.port and (not candidates or record.port in candidates):
            candidates.insert(0, record.port)
        for port in candidates:
            if port not in taken and _is_free(self.host, port):
                return port
        if not self.job_ports:
            return 0
        first, last = self.job_ports[0], self.job_ports[-1]
        raise RefusedError(
            409,
            f"ports: expected a free one from {first} to {last} for the job's server, and all are in use; "
            "stop another job, or start the hub with more --job-ports",
        )

    def arguments_of(self, record: JobRecord, folder: JobFolder) -> list[str]:
        """The arguments that start a job's server, or resume it.

        Raises:
            RefusedError: the file of its task is gone.
        """
        arguments = ["serve", "--plain", "--runs", str(self.runs), "--host", self.host, "--board", "0"]
        arguments += ["--port", str(record.port)]
        arguments += ["--volunteers", str(record.n_local), "--sample-time", SAMPLE_S, "--share", "graph"]
        if record.seats:
            assert record.training is not None, "a job that is started was told how"
            arguments += ["--seats", str(record.seats), "--wire", record.training.codec]
        if self.public_host:
            arguments += ["--public-host", self.public_host]
        if not is_loopback(self.host):
            arguments += ["--token-file", str(self.folder / DEVICE_TOKEN_FILE)]
        model, training = msgspec.convert(record.asked, Asked).model_config, record.training
        assert training is not None, "a job that is started was told how long"
        is_own = model.kind == "task"
        task = task_below(self.tasks, model.task) if is_own else f"{(folder.path / TASK_FILE).resolve()}:task"
        arguments += ["--task", task]
        if record.run:
            arguments += ["--resume", str(self.runs / record.run)]
            if not record.steps:
                return arguments
            rate = training.learning_rate
            return [
                *arguments,
                "--steps",
                str(record.steps),
                *([] if rate is None else ["--learning-rate", f"{rate:g}"]),
            ]
        if is_own:
            arguments += [
                "--steps",
                str(max(record.epochs, 1) * STEPS_PER_EPOCH),
                "--sample-every",
                str(STEPS_PER_EPOCH),
            ]
        if is_own and training.learning_rate is not None:
            arguments += ["--learning-rate", f"{training.learning_rate:g}"]
        return arguments


def _token(path: Path) -> str:
    return keep_secret(path, lambda: secrets.token_urlsafe(24).encode()).decode().strip()


def _is_free(host: str, port: int) -> bool:
    try:
        listen(host, port).close()
    except ConfigError:
        return False
    return True

"""The jobs of a hub: a server's process for each that is trained, started again from its journal when it dies."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.coordination.steps.divergence import DIVERGED, NO_LOSS
from fedlearn.hub.bodies import Asked, RefusedError, Training, written
from fedlearn.hub.devices import MAX_DEVICES, Devices
from fedlearn.hub.jobs.records import JobFolder, JobRecord, Status, find_jobs
from fedlearn.hub.jobs.seats import n_missing
from fedlearn.hub.jobs.served import GONE, Served, ServedNext
from fedlearn.hub.jobs.spec import ORDER_FILE, TASK_FILE, TASK_SOURCE, JobSpec
from fedlearn.hub.settings import HubSettings
from fedlearn.storage.durable import write_durably
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status
from fedlearn.system.children import Restarts
from fedlearn.system.signals import how_it_ended
from fedlearn.terminal.figures import counted

MAX_JOBS = 10_000
MAX_TRAINING = 16
"""The most jobs that are trained at a time: each is a process with a replica of its model."""

STOP_S = 15.0
WRONG_USAGE = 2


@final
class Jobs:
    """The jobs of a hub. Changes by `tick` and by requests are written to the disk before they are reported."""

    def __init__(self, settings: HubSettings, devices: Devices, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._devices, self._clock = settings, devices, clock
        self.records, self.problems = find_jobs(settings.jobs)
        self._served: dict[int, Served] = {}
        self._next: ServedNext | None = None
        """The process that will serve the job that is trained next."""
        self._restarts: dict[int, Restarts] = {}
        self._began: dict[int, float] = {}
        self._due: dict[int, float] = {}
        """Times at which servers that died are started again, by job."""
        self._missing: dict[int, int] = {}
        """Number of devices that a job lacks, as its log says; no entry before its crew was complete."""

    def take_up(self) -> None:
        """Goes on with the jobs that were trained when the hub ended; their servers may still be alive."""
        for record in self.records.values():
            if record.status != "training":
                continue
            served = Served.find(record.process) if record.process is not None else None
            if served is not None and record.run:
                self.folder(record).say("the hub is back, and its server goes on")
                self._served[record.job_id], self._began[record.job_id] = served, self._clock()
                self._missing[record.job_id] = 0
            elif record.process is not None and record.run:
                self._ended(record, GONE, self.status(record))  # in the hub's absence
            else:
                if served is not None:
                    served.kill()  # which run it has nobody knows
                self.folder(record).say("the hub is back, and starts its server again")
                self._start(record)

    def folder(self, record: JobRecord) -> JobFolder:
        """The folder of a job's files."""
        return JobFolder(self._settings.jobs / str(record.job_id))

    def run(self, record: JobRecord) -> RunFolder | None:
        """The job's run folder, once there is one."""
        return RunFolder(self._settings.runs / record.run) if record.run else None

    def get(self, number: int) -> JobRecord:
        """The record of a job.

        Raises:
            RefusedError: there is no such job.
        """
        if (record := self.records.get(number)) is None:
            raise RefusedError(404, f"job {number}: there is none; GET /api/jobs lists them")
        return record

    def server(self, record: JobRecord) -> str:
        """The address that volunteers are given; empty where no server listens."""
        if record.status != "training" or record.job_id not in self._served or not (record.port and record.run):
            return ""
        return str(self._settings.security.public_address(record.port, run=record.run))

    def create(self, asked: Asked, note: str) -> JobRecord:
        """Makes a job.

        Raises:
            RefusedError: there are too many.
            StorageError: the disk refuses.
        """
        if len(self.records) >= MAX_JOBS:
            raise RefusedError(
                409, f"jobs: expected at most {MAX_JOBS}; remove folders of old ones, and restart the hub"
            )
        # Also after the numbers of folders that can't be read.
        taken = [int(path.name) for path in self._settings.jobs.iterdir() if path.name.isdecimal()]
        number = max([*taken, *self.records], default=0) + 1
        record = JobRecord(job_id=number, asked=written(asked), note=note)
        self.folder(record).save(record)
        self.folder(record).say(note or "created")
        self.records[number] = record
        self._ready()
        return record

    def initialize(self, record: JobRecord, *, split: bool = False, chosen: Sequence[int] | None = None) -> None:
        """Gives idle devices to a job, or those that are `chosen`, and its model to all its devices: a whole one each,
        or one that is split.

        Raises:
            RefusedError: the job is in another status, or there are no devices, or too many to split it, or one that is
                chosen is not idle.
        """
        if record.status not in ("created", "initialized"):
            raise RefusedError(409, f"job {record.job_id}: expected it created or initialized, it is {record.status}")
        if chosen is not None:
            self._devices.give_to(record.job_id, chosen)
        most = msgspec.convert(record.asked, Asked).model_config.max_devices if split else MAX_DEVICES
        if (n_own := len(self._devices.of(record.job_id))) > most:
            raise RefusedError(
                400, f"devices: expected at most {most}, one for each layer, got {n_own}; unregister some of them"
            )
        if chosen is None:
            self._devices.give_idle_to(record.job_id, most=most - n_own)
        record.is_chosen = chosen is not None
        if not (n_devices := len(self._devices.of(record.job_id))):
            found = "none that is idle (GET /api/devices lists all)" if self._devices.all() else "none registered"
            raise RefusedError(
                400, f"devices: expected one or more, got {found}; fedlearn join --hub URL --job {record.job_id}"
            )
        record.seats = n_devices if split and n_devices > 1 else 0
        self._change(record, "initialized")
        how = "which hold the model between them" if record.seats else "each with the whole model"
        self.folder(record).say(f"initialized with {counted(n_devices, 'device')}, {how}")

    def train(self, record: JobRecord, training: Training) -> None:
        """Starts the job's server, goes on with one that was stopped, or trains a completed one for more epochs.

        Raises:
            RefusedError: the job's status does not allow it.
        """
        asked, number = msgspec.convert(record.asked, Asked), record.job_id
        if self.is_ending(record):
            raise _still_ending(record)
        if record.status == "training":
            raise RefusedError(409, f"job {number}: it is training already; stop it first, or create another job")
        if record.status == "created" and asked.model_config.kind == "mlp":
            raise RefusedError(
                409, f"job {number}: expected it initialized first; POST /api/network/initialize/{number}"
            )
        if len([r for r in self.records.values() if r.status == "training"]) >= MAX_TRAINING:
            raise RefusedError(409, f"jobs: expected at most {MAX_TRAINING} in training, and so many are; wait for one")
        if not (record.seats or record.is_chosen):
            self._devices.give_idle_to(number, most=MAX_DEVICES)
        training = msgspec.structs.replace(training, epochs=training.epochs or asked.model_config.usual_epochs)
        if not record.run:
            n_devices = len(self._devices.of(number))
            record.training, record.n_local = training, 0 if record.seats or n_devices else 1
            record.n_devices, record.epochs = max(n_devices, 1), training.epochs or 1
            self._write_order(record, asked, training)
        elif record.status == "completed":
            self._extend(record, training)
        self._restarts.pop(number, None)
        record.reason = ""
        self._start(record)
        self._devices.wake()

    def _extend(self, record: JobRecord, training: Training) -> None:
        """Adds epochs to a run that has taken all its steps."""
        status, epochs = self.status(record), training.epochs or 1
        if status is None or record.training is None:
            raise RefusedError(409, f"job {record.job_id}: expected the status of its run, it is gone; create another")
        record.n_local = 0 if record.seats or self._devices.of(record.job_id) else 1
        record.steps = status.steps + epochs * (status.steps // max(record.epochs, 1))
        record.epochs += epochs
        rate = training.learning_rate or record.training.learning_rate
        record.training = msgspec.structs.replace(training, learning_rate=rate, wire=record.training.codec)

    def stop(self, record: JobRecord) -> None:
        """Ends the job's server, as Ctrl-C does.

        Raises:
            RefusedError: the job is not in training.
        """
        if record.status != "training":
            raise RefusedError(409, f"job {record.job_id}: expected it in training, it is {record.status}")
        self._due.pop(record.job_id, None)
        if (served := self._served.get(record.job_id)) is not None:
            served.terminate()
        self._end(record, "stopped", "its operator stopped it")

    def is_ending(self, record: JobRecord) -> bool:
        """Whether the job is over while its server has not ended."""
        return record.status != "training" and record.job_id in self._served

    def delete(self, record: JobRecord) -> None:
        """Forgets a job, with its log and its order; its run stays.

        Raises:
            RefusedError: the job is in training, or its server still ends.
            OSError: a file cannot be removed.
        """
        number = record.job_id
        if self.is_ending(record):
            raise _still_ending(record)
        if record.status == "training":
            raise RefusedError(
                409, f"job {number}: expected it ended, it is in training; POST /api/network/stop/{number} first"
            )
        folder = self.folder(record)
        folder.record.unlink(missing_ok=True)
        for path in folder.path.iterdir():  # the folder stays, so that no other job gets its number
            path.unlink()
        del self.records[number]
        self._devices.wake()

    def tick(self) -> None:
        """Checks which run each process has, and whether it is alive."""
        for number, served in list(self._served.items()):
            record = self.records[number]
            if (begun := served.report()) is not None:
                record.run, record.port = Path(begun.folder).name, begun.port
                self.folder(record).save(record)
                self._devices.wake()
            if (code := served.poll()) is not None:
                del self._served[number]
                status = self.status(record)
                if record.status == "training" or _is_done(record, status):
                    self._ended(record, code, status)
        for number in [number for number, due in self._due.items() if self._clock() >= due]:
            del self._due[number]
            try:
                self._start(self.records[number])
            except RefusedError as error:  # the file of its task is gone, or every port is in use
                self._end(self.records[number], "failed", error.text)
        for number in self._served:
            self._tell_missing(self.records[number])

    @property
    def n_alive(self) -> int:
        """The number of servers that have not ended."""
        return len(self._served)

    def close(self) -> None:
        """Ends all servers, and kills those that do not end in time; the next hub goes on with their jobs."""
        if self._next is not None:
            self._next.close()
        for number, served in self._served.items():
            if (record := self.records[number]).status == "training":
                record.process = None  # so that whoever finds it ended knows by whom
                self.folder(record).save(record)
            served.terminate()
        deadline = time.monotonic() + STOP_S
        for served in self._served.values():
            while served.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if served.poll() is None:
                served.kill()

    def status(self, record: JobRecord) -> RunStatus | None:
        """The last status that the job's server wrote."""
        run = self.run(record)
        return read_status(run.status, RunStatus) if run is not None else None

    def missing(self, record: JobRecord) -> int:
        """Number of devices that its crew lacks, as its log says; 0 while its first devices are on their way."""
        return self._missing.get(record.job_id, 0) if self.server(record) else 0

    def _tell_missing(self, record: JobRecord) -> None:
        """Writes to the log whenever a crew lacks other devices than before."""
        if not record.seats or not self.server(record):
            return
        missing, before = n_missing(record.seats, self.status(record)), self._missing.get(record.job_id)
        if missing == before or (missing and before is None):
            return  # its first devices are on their way
        self._missing[record.job_id] = missing
        if missing:
            self.folder(record).say(
                f"of its {record.seats} devices {missing} are missing; whoever comes with fedlearn join --hub URL "
                f"--job {record.job_id} takes such a place; if nobody does the others go on, if they can hold the model"
            )
        else:
            self.folder(record).say(f"all {record.seats} devices hold their parts")

    def _ended(self, record: JobRecord, code: int, status: RunStatus | None) -> None:
        """Handles a server that ended although nobody had asked it to, or that had all its steps when it was."""
        if status is not None and status.state == "ended" and status.reason.startswith((DIVERGED, NO_LOSS)):
            self._end(record, "failed", status.reason)
        elif _is_done(record, status):
            self._end(record, "completed", "")
        elif code == 0 or (code == GONE and status is not None and status.state == "ended"):
            self._end(record, "stopped", status.reason if status is not None else "its server was stopped")
        elif not record.run or code == WRONG_USAGE:
            self._end(record, "failed", "its server could not begin; the log says why")
        else:
            self._die(record, code)

    def _die(self, record: JobRecord, code: int) -> None:
        number = record.job_id
        restarts = self._restarts.setdefault(number, Restarts())
        pause_s = restarts.died(self._clock() - self._began.get(number, -math.inf))
        how = "is gone" if code == GONE else how_it_ended(code)
        if pause_s is None:
            self._end(record, "failed", f"its server {how} again and again; the log says more")
            return
        self.folder(record).say(f"the server {how}; it is restarted from its journal in {pause_s:.0f} s")
        self._due[number] = self._clock() + pause_s
        self._devices.wake()

    def _end(self, record: JobRecord, status: Status, reason: str) -> None:
        record.reason, record.process = reason, None
        self._change(record, status)
        self.folder(record).say(f"{status}{': ' + reason if reason else ''}")
        self._devices.free(record.job_id)

    def _change(self, record: JobRecord, status: Status) -> None:
        record.status = status
        self.folder(record).save(record)

    def _write_order(self, record: JobRecord, asked: Asked, training: Training) -> None:
        order = JobSpec(
            asked=asked,
            training=training,
            data=str(self._settings.data.resolve()),
            n_devices=record.n_devices,
            seats=record.seats,
            is_stand_in=bool(record.note),
        )
        folder = self.folder(record).path
        write_durably(folder / ORDER_FILE, msgspec.json.encode(order))
        write_durably(folder / TASK_FILE, TASK_SOURCE.encode())

    def _start(self, record: JobRecord) -> None:
        folder = self.folder(record)
        others = [other.port for other in self.records.values() if other.job_id in self._served]
        record.port = self._settings.port_for(record, others)
        arguments = self._settings.arguments_of(record, folder)
        served, self._next = self._ready().begin(arguments, log=folder.log), None
        self._served[record.job_id], self._began[record.job_id] = served, self._clock()
        record.process = served.process
        self._missing.pop(record.job_id, None)
        self._change(record, "training")

    def _ready(self) -> ServedNext:
        """Has a process wait for the next job that is trained, which imports meanwhile what that needs."""
        if self._next is not None and not self._next.is_alive:
            self._next.close()
            self._next = None
        self._next = self._next or ServedNext()
        return self._next


def _is_done(record: JobRecord, status: RunStatus | None) -> bool:
    """Whether a job's run has ended with all its steps, also those that were added."""
    return status is not None and status.state == "ended" and 0 < max(status.steps, record.steps) <= status.step


def _still_ending(record: JobRecord) -> RefusedError:
    return RefusedError(409, f"job {record.job_id}: its server is still ending; try again in a moment")

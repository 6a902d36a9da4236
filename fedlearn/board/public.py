"""What of a run anybody may see: no addresses, paths or whole identities."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fedlearn.config import RunConfig, Schema
from fedlearn.coordination.status import RunStatus, VolunteerStatus
from fedlearn.server.changing import AT_WORK
from fedlearn.server.run import kind_of, load_run_config
from fedlearn.server.status_file import is_live, live_status
from fedlearn.storage.durable import StorageError
from fedlearn.storage.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status

MAX_VOLUNTEERS = 200
"""The most volunteers that are listed; the others are counted."""

IDENTITY_DIGITS = 8

_PRIVATE_GROUPS = ("server",)
"""Where the server listens, and its files."""

_HIDDEN_KEYS = ("runs", "step_num")
"""A folder, and where the run stood when it was saved last."""


class Shown(msgspec.Struct, frozen=True):
    """A setting of a run."""

    group: str
    key: str
    value: str
    help: str
    is_usual: bool
    """Whether it is the value that it has by itself."""
    is_changeable: bool
    """Whether an order may change it while the run goes on."""
    reason: str
    """Why the run chose it; empty where it did not."""


def describe(folder: RunFolder) -> dict[str, Any]:
    """What never changes of a run: its settings, with the reasons of those that it chose.

    Raises:
        ValueError: its settings cannot be used.
        StorageError: its files are damaged or of another version.
        OSError: its files cannot be read.
    """
    config, schema = load_run_config(folder), Schema(kind_of(folder).options)
    reasons, notes = _reasons_of(folder)
    usual = schema.build({})
    settings = [
        Shown(
            group,
            key,
            _without_path(value),
            schema.help_of(key),
            value == usual.get(key),
            key in AT_WORK,
            reasons.get(key, ""),
        )
        for key, group in schema.group_of.items()
        if group not in _PRIVATE_GROUPS and key not in _HIDDEN_KEYS
        for value in (config.get(key),)
    ]
    return {"name": folder.path.name, "task": task_of(config), "settings": settings, "notes": notes}


def summarize(folder: RunFolder) -> dict[str, Any]:
    """A run in a line."""
    status, task = live_status(folder), "unreadable"
    lines: list[StepMetrics] = []
    with suppress(ValueError, StorageError, OSError):  # no reason to show none of the others
        lines = read_last_metrics(folder.metrics)
        task = task_of(load_run_config(folder))
    return {
        "name": folder.path.name,
        "task": task,
        "state": status.state if status is not None else "ended",
        "step": lines[-1].step + 1 if lines else 0,
        "shown": lines[-1].shown if lines else {},
        "time": lines[-1].time if lines else 0.0,
    }


def status_of(folder: RunFolder) -> dict[str, Any] | None:
    """The run's status as anybody may see it; also the last one of a run that is over."""
    status = read_status(folder.status, RunStatus)
    if status is None:
        return None
    is_over = not is_live(status)
    volunteers = () if is_over else status.volunteers
    listed = sorted(volunteers, key=lambda volunteer: -volunteer.share)[:MAX_VOLUNTEERS]
    public: dict[str, Any] = msgspec.to_builtins(status)
    del public["pid"], public["format"]
    changes: dict[str, Any] = {
        "state": "ended" if is_over else status.state,
        "reason": _public_reason(status.reason),
        "n_volunteers": len(volunteers),
        "volunteers": [_volunteer(volunteer) for volunteer in listed],
        "members_per_s": 0.0 if is_over else status.members_per_s,
        "work_per_s": 0.0 if is_over else status.work_per_s,
        "bytes_in_per_s": 0.0 if is_over else status.bytes_in_per_s,
        "bytes_out_per_s": 0.0 if is_over else status.bytes_out_per_s,
    }
    return {**public, **changes}


def task_of(config: RunConfig) -> str:
    """The task's name, without the folder that its file is in."""
    return Path(config.run.task).name


def _volunteer(volunteer: VolunteerStatus) -> dict[str, Any]:
    public: dict[str, Any] = msgspec.to_builtins(volunteer)
    return public | {"identity": volunteer.identity[:IDENTITY_DIGITS]}


def _public_reason(reason: str) -> str:
    """An error of the disk names files."""
    return reason if "/" not in reason and "\\" not in reason else "an error, which the server's terminal shows"


def _without_path(value: object) -> str:
    """A file's name only; of an address on the web, which may hold a password or a key, its last part."""
    if isinstance(value, str):
        if "://" in value:
            value = re.split(r"[?#]", value)[0]
        return re.split(r"[/\\]", value)[-1]
    if isinstance(value, tuple):
        return ", ".join(map(_without_path, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reasons_of(folder: RunFolder) -> tuple[dict[str, str], list[str]]:
    """The reasons by key, and those that belong to no key."""
    if not folder.reasons.is_file():  # a device has no end
        return {}, []
    try:
        sentences = msgspec.json.decode(folder.reasons.read_bytes(), type=list[str])
    except (OSError, ValueError, RecursionError):
        return {}, []
    reasons, notes = {}, []
    for sentence in sentences:
        if found := re.fullmatch(r"(\w+) = [^:]*: (.*)", sentence, re.DOTALL):
            reasons[found.group(1)] = found.group(2)
        else:
            notes.append(sentence)
    return reasons, notes

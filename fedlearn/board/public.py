"""The facts of a run that anybody may see: no addresses, paths or whole identities."""

import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fedlearn.board.marks import birth_of
from fedlearn.config import OPTIONS, RunConfig, Schema
from fedlearn.coordination.status import RunStatus, VolunteerStatus
from fedlearn.runs.run import kind_of, load_run_config
from fedlearn.runs.status_file import is_live, live_status
from fedlearn.server.training.changing import AT_WORK, bound_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.changes import Change, as_written
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status
from fedlearn.tasks.reason import Reason, Reasons

MAX_VOLUNTEERS = 200
"""The most volunteers that are listed; the others are counted."""

IDENTITY_DIGITS = 8

MAX_FILE_BYTES = 2**20
"""The largest file that is read as a whole, in bytes: a folder may come from anybody."""

StructType = TypeVar("StructType", bound=msgspec.Struct)

_PRIVATE_GROUPS = ("server",)
"""Groups of settings that are not shown: the server's address and files."""

_HIDDEN_KEYS = ("runs", "step_num")
"""Settings that are not shown: a folder, and the step at which the run was last saved."""


class Shown(msgspec.Struct, frozen=True):
    """A setting of a run."""

    group: str
    key: str
    value: str
    help: str
    is_usual: bool
    """Whether it is the default value."""
    is_changeable: bool
    """Whether an order may change it while the run goes on."""
    reason: str
    """Why the run chose the value; empty where it did not, or where it was changed since."""
    set_at: int | None
    """The step at which an operator set it; None where nobody did."""
    before: str
    """Its value before that."""
    along_with: str
    """The setting that the operator named, where this one followed it; empty where there is none."""
    bound: str
    """The setting that becomes 0 where this one is set; empty where none does."""


def describe(folder: RunFolder) -> dict[str, Any]:
    """Describes a run's settings, with the reasons of those that it chose, and when its operator set others.

    Raises:
        ValueError: its settings cannot be used.
        StorageError: its files are damaged or of another version.
        OSError: its files cannot be read.
    """
    config, schema = load_run_config(folder), Schema(kind_of(folder).options)
    reasons = read_status(folder.reasons, Reasons, max_bytes=MAX_FILE_BYTES) or ()
    changes = {change.key: change for change in _lines(folder.changes, Change)}
    chosen = {reason.key: reason for reason in reasons if reason.key}
    usual = schema.build({})
    settings = [
        _shown(key, schema, config, usual, chosen.get(key), changes.get(key))
        for key, group in schema.group_of.items()
        if group not in _PRIVATE_GROUPS and key not in _HIDDEN_KEYS
    ]
    notes = [reason.why for reason in reasons if not reason.key]
    return {"name": folder.path.name, "task": task_of(config), "settings": settings, "notes": notes}


def summarize(folder: RunFolder) -> dict[str, Any]:
    """Summarizes a run for one line."""
    status, task = live_status(folder), "unreadable"
    settings: dict[str, str] = {}
    lines: list[StepMetrics] = []
    with suppress(ValueError, StorageError, OSError):  # no reason to show none of the others
        lines = read_last_metrics(folder.metrics)
        config = load_run_config(folder)
        task, settings = task_of(config), _telling(config)
    return {
        "name": folder.path.name,
        "born": birth_of(folder),
        "task": task,
        "settings": settings,
        "state": status.state if status is not None else "ended",
        "step": lines[-1].step + 1 if lines else 0,
        "shown": lines[-1].shown if lines else {},
        "time": lines[-1].time if lines else 0.0,
    }


def _telling(config: RunConfig) -> dict[str, str]:
    """Settings by which people tell runs apart: those of a model and its training that never change."""
    schema = Schema(type(config.options))
    model_first = sorted(schema.group_of.items(), key=lambda item: (item[1] != OPTIONS, item[0] == "seed"))
    return {
        key: _without_path(config.get(key))
        for key, group in model_first
        if group not in _PRIVATE_GROUPS and key not in schema.advanced | schema.resumable
    }


def status_of(folder: RunFolder) -> dict[str, Any] | None:
    """The run's status as anybody may see it; for a run that is over, its last one."""
    status = read_status(folder.status, RunStatus)
    if status is None:
        return None
    is_over = not is_live(status)
    volunteers = () if is_over else status.volunteers
    by_share = sorted(range(len(volunteers)), key=lambda place: -volunteers[place].share)
    listed = [volunteers[place] for place in sorted(by_share[:MAX_VOLUNTEERS])]  # else rows jump with every step
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
    """The reason without the names of files, which errors of the disk contain."""
    return reason if "/" not in reason and "\\" not in reason else "an error, which the server's terminal shows"


def _shown(
    key: str, schema: Schema, config: RunConfig, usual: RunConfig, reason: Reason | None, change: Change | None
) -> Shown:
    value = config.get(key)
    # A run may go on with flags of another day, or from a step before the change: what is said must be of this value.
    if change is not None and change.value != as_written(value):
        change = None
    if reason is not None and (change is not None or not _is_same(reason.value, value)):
        reason = None
    return Shown(
        group=schema.group_of[key],
        key=key,
        value=_without_path(value),
        help=schema.help_of(key),
        is_usual=value == usual.get(key),
        is_changeable=key in AT_WORK,
        reason=reason.why if reason is not None else "",
        set_at=change.step if change is not None else None,
        before=_without_path(change.before) if change is not None else "",
        along_with=change.along_with if change is not None else "",
        bound=bound_of(key, config),
    )


def _is_same(text: str, value: object) -> bool:
    """Whether a text shows this value, possibly with fewer digits."""
    try:
        return math.isclose(float(text), value, rel_tol=1e-5) if isinstance(value, int | float) else text == str(value)
    except ValueError:
        return False


def _without_path(value: object) -> str:
    """The name of a file without its folders; for a URL, which may hold a password or a key, its last part."""
    if isinstance(value, str):
        if "://" in value:
            value = re.split(r"[?#]", value)[0]
        return re.split(r"[/\\]", value)[-1]
    if isinstance(value, tuple | list):
        return ", ".join(map(_without_path, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _lines(path: Path, expected: type[StructType]) -> list[StructType]:
    """The lines of a JSON file that can be read."""
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        return []
    return list(read_lines(path, expected))

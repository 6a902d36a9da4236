"""The entries of lists of runs, whether a server has the run or not."""

from pathlib import Path
from typing import Any

import msgspec

from fedlearn.config import RunConfig
from fedlearn.runs.run import age_of, load_run_config
from fedlearn.runs.status_file import live_status
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.lines import read_last
from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.logs.samples import Sample
from fedlearn.storage.runs import RunFolder


class Listed(msgspec.Struct, frozen=True, eq=False):
    """An entry of a list of runs."""

    folder: RunFolder
    config: RunConfig | None
    """The run's settings; None where they cannot be read."""
    problem: str
    """The reason why they cannot be read; otherwise empty."""
    state: str | None
    """The state that the server which has the run reports; None where no server has it."""
    last: StepMetrics | None
    validation: dict[str, float]
    """The last figures on validation data."""

    @property
    def step(self) -> int:
        """Steps that the run has taken."""
        if self.last is not None:
            return self.last.step + 1
        return self.config.run.step_num if self.config is not None else 0


def look_at(folder: RunFolder) -> Listed:
    """Makes the entry of the run in a folder, even where something is wrong with it."""
    try:
        config, problem = load_run_config(folder), ""
    except (ValueError, StorageError, OSError) as error:
        return Listed(folder, None, str(error), None, None, {})
    lines, looks = read_last_metrics(folder.metrics), read_last(folder.samples, Sample)
    status = live_status(folder)
    return Listed(
        folder=folder,
        config=config,
        problem=problem,
        state=status.state if status is not None else None,
        last=lines[-1] if lines else None,
        validation={name: value for look in looks for name, value in look.figures.items() if value is not None},
    )


def as_json(listed: Listed) -> dict[str, Any]:
    """The entry as plain values for programs, with the settings by their keys."""
    folder, last = listed.folder, listed.last
    known = {"run": folder.path.name, "folder": str(folder.path), "size_bytes": size_of(folder.path)}
    if listed.config is None:
        return {**known, "problem": listed.problem}
    groups = msgspec.to_builtins(listed.config)
    return {
        **known,
        "state": listed.state,
        "is_live": listed.state is not None,
        "step": listed.step,
        "loss": last.loss if last is not None else None,
        "shown": last.shown if last is not None else {},
        "validation": listed.validation,
        "work_per_s": last.work_per_s if last is not None else None,
        "volunteers": last.volunteers if last is not None else None,
        "age_s": age_of(folder),
        "settings": {key: value for group in groups.values() for key, value in group.items()},
    }


def size_of(path: Path) -> int:
    """Bytes of all files in a folder, without those that vanish meanwhile."""
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_size if file.is_file() and not file.is_symlink() else 0
        except OSError:
            continue
    return total

"""A run on disk: its folder and its task, ready to be trained, replayed or examined."""

import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fedlearn.config import ConfigError, RunConfig, Schema, load_config, to_json
from fedlearn.config.nearest import did_you_mean
from fedlearn.data.folder import RunData
from fedlearn.storage.checkpoint import Context, checkpoints_in, load_metadata
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.segment import segments_in
from fedlearn.storage.origin import Origin, check_files, load_origin, to_text
from fedlearn.storage.runs import RunFolder, resolve_run
from fedlearn.storage.task_file import is_task_file, load_task
from fedlearn.system.invocation import invocation
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.kind import Kind, Prepared
from fedlearn.tasks.registry import find_kind, kind_names, kind_of_task
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.record import RecordedExaminer

KIND_FILE = "kind"
"""The file in the run's data folder that names the kind of its task."""

TASK_REMEDY = (
    "make a task with fedlearn.environment, function, supervised or reward; without one, a recurrent network learns "
    "the text that `data` names"
)


class Run(msgspec.Struct, frozen=True, eq=False):
    """The facts of a run that do not change while it goes on."""

    folder: RunFolder
    prepared: Prepared
    origin: Origin
    notices: tuple[str, ...] = ()
    """Texts about files that were passed over when the run was opened."""

    @property
    def config(self) -> RunConfig:
        """The settings, with a value for each key."""
        return self.prepared.config

    def holding(self, *, threads: int = 0) -> Holding:
        """Objective and all blocks of data, without a replica yet."""
        return Holding(
            self.prepared.objective, seed=self.config.run.seed, threads=threads, blocks=self.prepared.named_blocks
        )

    def context(self, *, step: int) -> Context:
        """The context of a checkpoint of the run at this step."""
        return Context(
            layout=msgspec.json.encode(self.prepared.objective.layout).decode(),
            config=to_json(self.config.replace({"step_num": step})),
            origin=to_text(self.origin),
        )


def kind_of(folder: RunFolder) -> Kind:
    """The kind of a run's task.

    Raises:
        StorageError: the folder does not say.
    """
    if not folder.data.is_dir():
        raise StorageError(f"{folder.data}: expected the folder of the run's data, got none; restore it from a copy")
    try:
        name = (folder.data / KIND_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{folder.data / KIND_FILE}: expected the kind of the run's task: {error}; "
            "the run may be of an older version of fedlearn; use that version"
        ) from error
    return find_kind(name)


def load_run_config(folder: RunFolder) -> RunConfig:
    """The configuration in a run's folder.

    Raises:
        ConfigError: it is damaged.
    """
    try:
        file = (str(folder.config), folder.config.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{folder.config}: expected JSON: {error}; restore it from a copy") from error
    config = load_config(Schema(kind_of(folder).options), file, {}, {})
    if not config.is_settled:
        missing = ", ".join(config.open_keys)
        raise ConfigError(f"{missing}: expected the values of the run, got 0 from {folder.config}; put them back")
    return config


def load(folder: RunFolder, config: RunConfig, *, task: NamedTask | None = None) -> Run:
    """The run in a folder, with these settings; without the code of its task it can be replayed only.

    Everything that opens a run comes through here: its files and settings are compared with those that it began with.

    Raises:
        ValueError: settings or files cannot be used, or the task is not the run's.
        StorageError: files cannot be read, or are not the run's.
    """
    origin, notices = load_origin(folder)
    check_files(folder, origin)
    kind = kind_of(folder)
    for key, now in settings_of(Schema(kind.options), config).items():
        if (was := origin.settings.get(key, now)) != now:
            raise ConfigError(
                f"{key}: expected {was!r}, as when the run began, got {now!r} from {folder.config}; "
                "put it back, or start a new run"
            )
    prepared = kind.reopen(config, task, folder=RunData(folder.data))
    return Run(folder, prepared, origin, notices)


def edited_settings(folder: RunFolder, config: RunConfig) -> list[str]:
    """A sentence for each setting that was edited in the run's file since its newest checkpoint."""
    schema = Schema(kind_of(folder).options)
    for path in [*reversed(checkpoints_in(folder)), folder.genesis]:
        with suppress(StorageError, ConfigError):
            saved = load_config(schema, (f"{path}: config.json", load_metadata(path, "config")), {}, {})
            keys = [key for key in schema.fields if key != "step_num" and saved.get(key) != config.get(key)]
            return [
                f"{key}: {config.get(key)!r} in {folder.config}, it was {saved.get(key)!r} when {path.name} was written"
                for key in keys
            ]
    return []


def settings_of(schema: Schema, config: RunConfig) -> dict[str, Any]:
    """The settings that determine a run: the keys that a resumed run may not change, with their values."""
    changing = {"step_num", *schema.resumable}
    values: dict[str, Any] = {key: config.get(key) for key in schema.fields if key not in changing}
    # As they are in JSON, which has no tuples.
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def named_task(text: str) -> NamedTask | None:
    """The task in the file that a configuration's `task` names; None where it names a kind."""
    return load_task(text) if is_task_file(text) else None


def kind_named(text: str, task: NamedTask | None) -> Kind:
    """The kind of the task that a configuration's `task` names.

    Raises:
        ValueError: it names a kind that no package brings.
    """
    if task is not None:
        return kind_of_task(task.task)
    if text not in (names := kind_names()):
        raise ValueError(
            f"task: expected one of {', '.join(names)}, or FILE.py:NAME of a task, got {text!r}; "
            f"{did_you_mean(text, names) or TASK_REMEDY}"
        )
    return find_kind(text)


def find(root: str, text: str, *, task: str | None = None) -> Run:
    """The run that `text` names under `root`: a number, `latest`, or a folder.

    Of a task in a file this has the code only where the caller names the file: a folder may come from anybody.
    """
    folder = resolve_run(Path(root), text)
    config = load_run_config(folder)
    named = load_task(task) if task is not None else None
    if named is not None and (given := kind_of_task(named.task)).name != (kind := kind_of(folder)).name:
        raise ConfigError(
            f"--task: expected a task of kind {kind.name}, as the run's, got {named.entry} of kind {given.name}; "
            "leave it out, or name the run's own"
        )
    return load(folder, config, task=named)


def task_flag(folder: RunFolder, config: RunConfig) -> str:
    """The flag that commands about this run take as well, since code has to be named: ` --task FILE`, or nothing.

    The file of a task that a script made is not known, so that its place is named.
    """
    if is_task_file(config.run.task):
        return f" --task {shlex.quote(config.run.task)}"
    return "" if kind_of(folder).name == config.run.task else " --task FILE.py:NAME"


def lacks_code(run: Run) -> bool:
    """Whether figures and films of this run take the code of its task, which nobody has named."""
    return isinstance(run.prepared.examiner, RecordedExaminer)


def needing_task(folder: RunFolder, config: RunConfig, what: str, given: Sequence[str] = ()) -> ConfigError:
    """The refusal to import code that nobody named but the run's folder, with the command that does, where the words
    after `fedlearn` are `given`."""
    flag = task_flag(folder, config)
    remedy = f"type: {invocation(given[0])} {shlex.join(given[1:])}{flag}" if given else f"add:{flag}"
    return ConfigError(
        f"--task: expected the file of the run's task, since {what} takes its code, and what only a run's folder names "
        f"is never executed; if you trust it, {remedy}"
    )


def age_of(folder: RunFolder) -> float:
    """Seconds since the run last wrote anything."""
    files = [folder.config, *segments_in(folder.journal)[-1:], folder.metrics]
    return time.time() - max(file.stat().st_mtime for file in files if file.exists())

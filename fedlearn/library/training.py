"""`fedlearn.train`: a whole run in this process, for scripts and notebooks."""

import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedlearn.callback import Callback, Callbacks
from fedlearn.config import ConfigError, RunConfig, Schema, SourceFile, load_config, task_of
from fedlearn.coordination.steps.divergence import DIVERGED, NO_LOSS
from fedlearn.library.progress import ProgressLine, is_watched
from fedlearn.library.trained import Trained
from fedlearn.runs.creation import create
from fedlearn.runs.rollback import way_back
from fedlearn.runs.run import TASK_REMEDY, kind_named, named_task
from fedlearn.runs.status_file import StatusFile
from fedlearn.server.training.examination import Agenda
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.storage.runs import lock_run
from fedlearn.system.signals import interrupts
from fedlearn.tasks.kind import Kind
from fedlearn.tasks.task import Setting, Task
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal.bars import Bars

Value = Setting | np.generic | Path | Sequence[str | Path]
"""The value of a setting as people write it; `data` takes several texts."""

ALONE: dict[str, Setting] = {"audit": 0.0, "share": "nothing"}
"""Settings of every run in one process, which nobody joins."""


def train(
    task: Task | str | Path | None = None,
    *,
    steps: int = 0,
    duration: float = 0.0,
    runs: str | Path | None = "trainingRuns",
    threads: int = 0,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    **settings: Value,
) -> Trained:
    """Trains in this process for `steps` steps or `duration` seconds, and gives the trained run.

    The task is made by `fedlearn.supervised` or one of its siblings, or it is `FILE.py:NAME` of such a task, or a
    configuration file (TOML or JSON). Without a task, a recurrent network learns the text `data="text.txt"`, or a list
    of texts. `settings` are those of a run, such as `sigma`, `learning_rate` and `group_size`; they override the
    file's, which override the task's own. The run's folder is made in the folder `runs`, or in a temporary one if that
    is None. `callbacks` are told what happens; `progress` shows a line, by default in a terminal or notebook. Ctrl-C
    ends the training and gives the run as it is then. A run that diverged is given with a warning, which says how to
    go back to its best step. A callback that raises an exception is named in a warning, and is told nothing more.

    `threads` are those of networks; 0 takes all cores. A policy and a plain function run in one thread, here on one
    core, whatever `threads` is: put such a task in a file, and `fedlearn serve --task FILE.py:NAME` starts a volunteer
    for each core, eight at most. A function that waits may have `workers` of its own.

    >>> from fedlearn import function
    >>> task = function(lambda arrays: float(((arrays["x"] - 3.0) ** 2).sum()), {"x": [0.0, 0.0]})
    >>> alike = {"sigma": 0.1, "learning_rate": 0.1, "population_limit": 64, "group_size": 16, "time_per_step": 10}
    >>> run = train(task, steps=40, runs=None, **alike)
    >>> run.step, run.weights["x"].round(1).tolist()
    (40, [3.0, 3.0])

    Raises:
        ConfigError: a setting is unknown or out of its range, or the run has no end.
        StorageError: a file can't be written.
        TypeError: the task is none, or a callback is no `fedlearn.Callback`, or is a class of such.
        ValueError: no loss is finite; the message says why, as far as it can be seen.
    """
    told = [_checked(callback) for callback in callbacks]
    root = str(runs) if runs is not None else tempfile.mkdtemp(prefix="fedlearn-")
    ends: dict[str, Value] = {name: end for name, end in (("steps", steps), ("duration", duration)) if end}
    kind, named, config = configured(task, {**settings, **ends, "runs": root, "threads": threads}, always=ALONE)
    if not (config.run.steps or config.run.duration):
        raise ConfigError("steps, duration: expected one of them, so that training ends, got neither")
    is_shown = is_watched() if progress is None else progress
    watching = [*told, *([ProgressLine()] if is_shown else [])]
    with Bars(stream=sys.stdout, quiet=not is_shown, redrawn=True).bar("preparing the run") as bar:
        run = create(kind, config, named, trust="all of it is in this process", progress=bar)
    with lock_run(run.folder):
        trainer, _ = Trainer.open(run)
        try:
            reason = _run(trainer, named, threads, [*watching, StatusFile(run.folder.status, lambda _: None)])
            if reason.startswith(NO_LOSS):
                raise ValueError(reason)
            if reason.startswith(DIVERGED):
                warnings.warn(f"{reason}; go back to its best step with: {way_back(run)}", stacklevel=2)
            return Trained(run, trainer.replica)
        finally:
            trainer.close()


def _checked(callback: object) -> Callback:
    """The callback, which is one.

    Raises:
        TypeError: it is none.
    """
    if isinstance(callback, Callback):
        return callback
    made = f"; make one of it: {callback.__name__}()" if isinstance(callback, type) else "; derive a class from that"
    raise TypeError(f"callbacks: expected objects of a class derived from fedlearn.Callback, got {callback!r}{made}")


def _plain(value: Value) -> Setting | list[str]:
    """The value as a setting holds it, in which paths are texts, and NumPy's numbers are Python's."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        number: Setting = value.item()
        return number
    return [str(one) for one in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def configured(
    task: Task | str | Path | None, given: Mapping[str, Value], *, always: Mapping[str, Setting]
) -> tuple[Kind, NamedTask | None, RunConfig]:
    """The kind, the task and the configuration of a run; settings in `always` that the kind has outrank all others.

    Raises:
        ConfigError: a setting is unknown or out of its range.
        TypeError: the task is neither a task nor a text.
    """
    if not isinstance(task, Task | str | Path | None):
        raise TypeError(f"task: expected a task, or FILE.py:NAME of one, got {task!r}; {TASK_REMEDY}")
    if "settings" in given:
        raise ConfigError(
            f"settings: expected each setting as a keyword of its own, such as sigma=0.1, got {given['settings']!r}; "
            "write ** before a dictionary of settings"
        )
    settings = {key: _plain(value) for key, value in given.items()}
    file: SourceFile | None = None
    if isinstance(task, Task):
        named: NamedTask | None = NamedTask(task, f"a task of kind {task.kind}", source=b"")
    else:
        text = "" if task is None else str(task)
        if text.lower().endswith((".toml", ".json")):
            file, text = (text, Path(text).read_text(encoding="utf-8")), ""
        text = text or task_of(file, {}, {})
        named = named_task(text)
    kind = kind_named("" if named is not None else text, named)
    schema = Schema(kind.options)
    alone = {key: value for key, value in always.items() if key in schema.fields}
    own = dict(named.task.settings) if named is not None else {}
    config = load_config(schema, file, {}, {}, defaults=own, keywords={**settings, **alone})
    # Where a file names the task, a server may go on with the run.
    return kind, named, config if isinstance(task, Task) or named is None else config.replace({"task": named.entry})


def _run(trainer: Trainer, task: NamedTask | None, threads: int, callbacks: Iterable[Callback]) -> str:
    """Trains until the run ends; gives the reason."""
    agenda = Agenda()
    swarm = Swarm(trainer, time.monotonic, task=task, callbacks=callbacks)
    try:
        with interrupts() as interrupted:
            swarm.join("this process", threads=threads)
            while swarm.reason is None:
                swarm.advance()
                _warn_of_failures(swarm.callbacks)
                if interrupted.is_set():
                    swarm.stop("interrupted")
                elif (step := trainer.replica.step) and agenda.is_due(
                    time.monotonic(), trainer.sample_time, step=step, every=trainer.sample_every
                ):
                    swarm.callbacks.on_look(step)
                    found = trainer.examine(trainer.copy())
                    swarm.callbacks.on_examined(step, found.figures, found.sample)
    except BaseException as error:
        swarm.ended(f"{type(error).__name__}: {error}")
        raise
    finally:
        _warn_of_failures(swarm.callbacks)
    return swarm.reason


def _warn_of_failures(callbacks: Callbacks) -> None:
    """Warns whoever called `train` of each callback that was dropped; not from within, where an error of the warning
    would be dropped too."""
    while callbacks.failures:
        warnings.warn(callbacks.failures.pop(0), stacklevel=4)

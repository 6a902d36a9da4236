"""`fedlearn.train`: a whole run in this process, for scripts and notebooks."""

import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import final

from fedlearn.callback import Callback
from fedlearn.config import Schema, load_config
from fedlearn.es.layout import Float32Array
from fedlearn.server.creation import create
from fedlearn.server.run import Run
from fedlearn.server.status_file import StatusFile
from fedlearn.server.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.storage.metrics import StepMetrics
from fedlearn.storage.runs import lock_run
from fedlearn.tasks.named_task import NamedTask
from fedlearn.tasks.registry import find_kind
from fedlearn.tasks.task import Setting, Task


@final
class Trained:
    """A run that was trained: its weights by name, its metrics a step, and its folder."""

    def __init__(self, run: Run, weights: Float32Array, metrics: list[StepMetrics], figures: dict[str, float]) -> None:
        self.folder: Path = run.folder.path
        self.weights: Mapping[str, Float32Array] = run.prepared.objective.layout.split(weights)
        self.metrics = metrics
        self.figures = figures
        """Of the weights on held-out data."""

    @property
    def losses(self) -> list[float | None]:
        """Mean loss of the members, a step."""
        return [metrics.loss for metrics in self.metrics]

    def __repr__(self) -> str:
        return f"Trained({len(self.metrics)} steps, figures {self.figures}, in {str(self.folder)!r})"


def train(
    task: Task,
    *,
    steps: int = 0,
    duration: float = 0.0,
    runs: str | Path | None = None,
    threads: int = 0,
    callbacks: Iterable[Callback] = (),
    **settings: Setting,
) -> Trained:
    """Trains a task in this process until `steps` steps or `duration` seconds are over, and gives what came of it.

    `settings` are those of a run, such as `sigma`, `learning_rate` and `group_size`; they outrank the task's own. The
    run's folder is made under `runs`, a temporary folder if there is none. `callbacks` are told what happens.

    Raises:
        ConfigError: a setting is unknown or out of its range, or the run has no end.
    """
    if not (steps or duration):
        raise ValueError("steps, duration: expected one of them, so that training ends, got neither")
    kind = find_kind(task.kind)
    root = str(runs) if runs is not None else tempfile.mkdtemp(prefix="fedlearn-")
    alone: dict[str, Setting] = {"share": "nothing", "audit": 0.0}  # nobody joins
    ends = {"steps": steps, "duration": duration}
    given = {**alone, **task.settings, **settings, **ends, "runs": root, "threads": threads}
    config = load_config(Schema(kind.options), None, {}, {}, defaults=given)
    named = NamedTask(task, f"a task of kind {task.kind}", source=b"")
    run = create(kind, config, named)
    with lock_run(run.folder):
        trainer, _ = Trainer.open(run)
        try:
            return _trained(run, trainer, named, threads, callbacks)
        finally:
            trainer.close()


def _trained(run: Run, trainer: Trainer, task: NamedTask, threads: int, callbacks: Iterable[Callback]) -> Trained:
    status = StatusFile(run.folder.status, lambda _: None)
    swarm = Swarm(trainer, time.monotonic, task=task, callbacks=[*callbacks, status])
    swarm.join("this process", threads=threads)
    while swarm.reason is None:
        swarm.advance()
    weights = trainer.replica.weights.copy()
    return Trained(run, weights, swarm.metrics, run.prepared.examiner.validate(weights, threads=threads))

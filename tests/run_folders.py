"""Runs small enough to train in milliseconds: of a recurrent network, and of a plain function."""

import random
from pathlib import Path
from typing import Any

import numpy as np

from fedlearn.config import RunConfig, Schema
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Adam
from fedlearn.es.update import Update
from fedlearn.runs.creation import create
from fedlearn.runs.run import Run, load, load_run_config
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.function import FunctionTask, function
from fedlearn.tasks.registry import kind_of_task
from fedlearn.tasks.rnn.kind import KIND as RNN
from fedlearn.tasks.rnn.options import RnnOptions
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.task_options import TaskOptions
from fedlearn.wire.encoding.parcel import Parcel

TEXT = "the small red bird sings and flies over hills and rivers when the winter comes to a quiet end"
TARGET = np.linspace(-1.0, 1.0, 6, dtype=np.float32)

STRATEGY: dict[str, Any] = {
    "perturb": "weights",
    "head": "perturbed",
    "population_limit": 64,
    "group_size": 8,
    "sigma": 0.02,
    "learning_rate": 0.02,
    "time_per_step": 10.0,
    "checkpoint_time": 1e6,
    "audit": 0.0,
}


def write_text(path: Path, length: int = 4000) -> Path:
    """A text file of so many characters, in paragraphs."""
    words, choices = TEXT.split(), random.Random(5)
    text = ""
    while len(text) < length:
        text += " ".join(choices.choices(words, k=8)) + choices.choice([".\n", ".\n\n"])
    path.write_text(text[:length], encoding="utf-8")
    return path


def rnn_config(folder: Path, **settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    """Of a run in `folder/runs`, on a text of its own."""
    shape = {"hidden_size": 8, "context": 4, "sequence_length": 8, "precision": "float32"}
    text = {"data": (str(write_text(folder / "corpus.txt")),)}
    return Schema(RnnOptions).build({**STRATEGY, **shape, **text, "runs": str(folder / "runs"), **settings})


def task_config(folder: Path, **settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    """Of a run of a user's task in `folder/runs`; gradients have no noise."""
    noise = {"sigma": 0.0} if settings.get("measure") == "gradients" else {}
    where = {"task": "fit.py:task", "runs": str(folder / "runs")}
    return Schema(TaskOptions).build({**STRATEGY, **noise, **where, **settings})


def fit_task(**arguments: Any) -> NamedTask:  # noqa: ANN401 (arguments of `function`)
    """A task that finds TARGET; its loss ends at -1."""

    def loss(arrays: dict[str, Float32Array]) -> float:
        return float(((arrays["vector"] - TARGET) ** 2).mean()) - 1.0

    return named(
        function(**{"loss": loss, "start": {"vector": np.zeros(TARGET.size)}, "covariance": False, **arguments})
    )


def named(task: FunctionTask) -> NamedTask:
    """The task as if a file had named it."""
    return NamedTask(task, "fit.py:task", bytes(16))


def created(config: RunConfig, task: NamedTask | None = None, **changes: Any) -> Run:  # noqa: ANN401
    """A new run, of a recurrent network where there is no task."""
    return create(RNN if task is None else kind_of_task(task.task), config.replace(changes), task)


def reopened(run: Run, **changes: Any) -> Run:  # noqa: ANN401 (values of any setting)
    """The run as another process finds it."""
    return load(run.folder, load_run_config(run.folder).replace(changes))


def update_of(run: Run, step: int, *, elapsed_s: float = 0.0) -> Update:
    """A step on the run's first block, the same whatever the weights are."""
    return Update(
        step,
        next(iter(run.prepared.named_blocks)),
        spans=((0, 16),),
        utilities=np.arange(-8, 8, dtype=np.int8),
        rank=1,
        group_size=8,
        gradient_scale=-0.1,
        optimizer=Adam(0.01),
        antithetic=False,
        weight_decay=0.0,
        decay_towards="zero",
        elapsed_s=elapsed_s,
        shaping_scale=1.0,
    )


def spanning(*spans: tuple[int, int], step: int, group_size: int = 4) -> Update:
    """A step of these members that changes nothing, of a task without blocks."""
    return Update(
        step,
        NO_BLOCK,
        spans=spans,
        utilities=np.zeros(sum(count for _, count in spans), dtype=np.int8),
        rank=1,
        group_size=group_size,
        gradient_scale=1.0,
        optimizer=Adam(0.1),
        antithetic=False,
        weight_decay=0.0,
        decay_towards="zero",
        elapsed_s=0.0,
        shaping_scale=1.0,
    )


def bytes_of(parcel: Parcel) -> bytes:
    """All its frames."""
    return b"".join(parcel.frame(number) for number in range(parcel.n_frames))

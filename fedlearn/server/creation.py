"""How a run begins: its folder, with all that replays it."""

import shutil
from pathlib import Path

from fedlearn.config import ConfigError, RunConfig, to_json
from fedlearn.es.replica import genesis
from fedlearn.server.run import KIND_FILE, Run
from fedlearn.server.throughput import Throughput
from fedlearn.storage.checkpoint import write_checkpoint
from fedlearn.storage.durable import write_durably
from fedlearn.storage.runs import create_run
from fedlearn.tasks.kind import Kind, Measure
from fedlearn.tasks.limits import MAX_PARAMETERS
from fedlearn.tasks.named_task import NamedTask


def create(kind: Kind, config: RunConfig, task: NamedTask | None = None, *, measure: Measure | None = None) -> Run:
    """A new run. Where that fails no folder stays.

    Values that the configuration leaves open are chosen by the kind; `measure` is called only where there are any.

    Raises ConfigError for a task or a model that can't be had, StorageError where the disk refuses.
    """
    measure = measure or Throughput(config)
    prepared = kind.start(config, task, read_file=lambda path: Path(path).read_bytes(), measure=measure)
    _check_size(prepared.objective.layout.size)
    folder = create_run(Path(config.run.runs))
    run = Run(folder, prepared)
    try:
        for name, payload in {**prepared.files, KIND_FILE: f"{kind.name}\n".encode()}.items():
            write_durably(folder.data / name, payload)
        snapshot = genesis(
            prepared.objective.layout,
            prepared.objective.initial_weights(),
            step=run.config.run.step_num,
            keeps_start=run.config.optimizer.weight_decay_towards == "start",
        )
        write_checkpoint(folder.genesis, snapshot, layout=run.layout_json(), config=to_json(run.config))
        write_durably(folder.config, to_json(run.config).encode())
    except BaseException as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        if isinstance(error, MemoryError):
            raise ConfigError(
                f"task: expected a model that fits in memory, got {prepared.objective.layout.size} parameters; "
                "choose a smaller one"
            ) from error
        raise
    return run


def _check_size(size: int) -> None:
    if not 0 < size <= MAX_PARAMETERS:
        raise ConfigError(f"task: expected a model of 1 to {MAX_PARAMETERS} parameters, got {size}")

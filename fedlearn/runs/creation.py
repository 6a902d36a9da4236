"""How a run begins: its folder, with everything that is needed to replay it."""

import shutil
from pathlib import Path

import msgspec

from fedlearn.config import ConfigError, RunConfig, Schema, to_json
from fedlearn.coordination.crews.planning import crew_planner_of
from fedlearn.data.folder import RunData
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.optimizers import OPTIMIZERS, optimizer_name
from fedlearn.es.replica import genesis
from fedlearn.es.strategy import Strategy
from fedlearn.runs.forecast import forecast
from fedlearn.runs.noise_space import choose_space
from fedlearn.runs.run import KIND_FILE, Run, settings_of
from fedlearn.runs.throughput import Throughput
from fedlearn.storage.checkpoint import write_checkpoint
from fedlearn.storage.durable import write_durably
from fedlearn.storage.origin import Origin, hash_of, to_text
from fedlearn.storage.runs import create_run
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.kind import Kind, Measure, Prepared
from fedlearn.tasks.limits import MAX_PARAMETERS
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.text.source import NoProgress, Progress


def create(
    kind: Kind,
    config: RunConfig,
    task: NamedTask | None = None,
    *,
    trust: str = "",
    measure: Measure | None = None,
    progress: Progress | None = None,
) -> Run:
    """Makes a new run; where an error is raised, no folder stays.

    Values that the configuration leaves open are chosen by the kind; `measure` is called only where there are any.
    `trust` says why all volunteers are the run's owner's; empty: anybody may join. `progress` is told how far the
    preparation is.

    Raises:
        ConfigError: the task or its model cannot be had, or not be divided among the seats that are wanted.
        StorageError: the disk refuses.
    """
    progress = progress or NoProgress()
    config, noise = choose_space(config, kind, trust)
    measure = _reported(measure or Throughput(config), progress)
    folder, n_parameters = create_run(Path(config.run.runs)), 0
    try:
        prepared = kind.start(config, task, folder=RunData(folder.data), measure=measure, progress=progress)
        config = prepared.config.replace({"optimizer": optimizer_name(prepared.config.optimizer.optimizer)})
        prepared = msgspec.structs.replace(prepared, config=config, reasons=(*noise, *prepared.reasons))
        prepared = _with_forecast(prepared)
        n_parameters = prepared.objective.layout.size
        _check_size(n_parameters)
        _check_search(config, prepared.objective.layout)
        # A run that can't be served must not become a run.
        crew_planner_of(prepared.invitation, prepared.config)
        files = {**prepared.files, KIND_FILE: f"{kind.name}\n".encode()}
        for name, payload in files.items():
            write_durably(folder.data / name, payload)
        snapshot = genesis(
            prepared.objective.layout,
            prepared.objective.initial_weights(),
            step=prepared.config.run.step_num,
            keeps_start=strategy_of(prepared.config).keeps_start,
        )
        progress.begin("hashing the files of the run")
        origin = Origin(
            step=snapshot.step,
            digest=snapshot.digest.hex(),
            settings=settings_of(Schema(kind.options), prepared.config),
            files={path.name: hash_of(path) for path in sorted(folder.data.iterdir())},
        )
        run = Run(folder, prepared, origin)
        write_checkpoint(folder.genesis, snapshot, None, run.context(step=snapshot.step))
        write_durably(folder.reasons, msgspec.json.encode(prepared.reasons))
        write_durably(folder.origin, to_text(origin).encode())
        write_durably(folder.config, to_json(run.config).encode())
    except BaseException as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        if isinstance(error, MemoryError) and n_parameters:
            raise ConfigError(
                f"task: expected a model that fits in memory, got {n_parameters} parameters; choose a smaller one"
            ) from error
        raise
    return run


def _with_forecast(prepared: Prepared) -> Prepared:
    """Adds a sentence about what the run sends; crews send activations, as many as their cuts say."""
    config = prepared.config
    if config.server.seats:
        return prepared
    expected = forecast(
        strategy_of(config),
        prepared.objective.layout,
        n_volunteers=max(config.volunteers.volunteers, 1),
        members_per_s=prepared.members_per_s,
    )
    return msgspec.structs.replace(prepared, reasons=(*prepared.reasons, expected.reason()))


def _reported(measure: Measure, progress: Progress) -> Measure:
    """Wraps a measurement so that `progress` is told of it."""

    def measured(objective: Objective, strategy: Strategy, data: Columns) -> float:
        progress.begin("measuring this machine")
        return measure(objective, strategy, data)

    return measured


def _check_size(size: int) -> None:
    if not 0 < size <= MAX_PARAMETERS:
        raise ConfigError(f"task: expected a model of 1 to {MAX_PARAMETERS} parameters, got {size}")


def _check_search(config: RunConfig, layout: ParameterLayout) -> None:
    """Checks that the optimizer that correlates members' noise has a factor for that, and no other one has."""
    name = config.optimizer.optimizer
    if OPTIMIZERS[name].searches != layout.is_correlated:
        wanted = "cma, by which the noise of this function learns its shape" if layout.is_correlated else "another one"
        raise ConfigError(
            f"optimizer: expected {wanted}, got {name}; covariance={not layout.is_correlated} of fedlearn.function "
            "changes that"
        )
    if not layout.is_correlated:
        return
    for key, value in (("rank", 0), ("weight_decay", 0.0), ("sigma_schedule", "constant")):
        if config.get(key) != value:
            raise ConfigError(f"{key}: expected {value} with the optimizer {name}, got {config.get(key)}; leave it out")
    rate, sigma = config.optimizer.learning_rate, config.strategy.sigma
    if rate != sigma * OPTIMIZERS[name].rate_to_sigma:
        raise ConfigError(
            f"learning_rate: expected that of the noise, {sigma:g}, which adapts to the steps that are taken, "
            f"got {rate:g}; leave it out, or covariance=False of fedlearn.function takes any"
        )

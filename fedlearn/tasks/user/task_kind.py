"""The kinds of tasks that users bring in a file, all prepared alike because the task itself defines what differs."""

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from fedlearn.config import ConfigError, RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns, cut, decode_block, encode_block, n_rows
from fedlearn.tasks.environment.registered import RegisteredExaminer, registered
from fedlearn.tasks.environment.task import EnvironmentTask
from fedlearn.tasks.film import Film
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.kind import DataFolder, Examiner, Kind, Measure, Prepared
from fedlearn.tasks.limits import UNBOUNDED
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.task import CUSTOM, Device, Task
from fedlearn.tasks.torch_graph.sharing import received
from fedlearn.tasks.user.invitations import invitation_of, joined
from fedlearn.tasks.user.named_task import NamedTask, differences
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.record import RecordedExaminer, RecordedObjective, TaskRecord
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions, options_of
from fedlearn.text.source import Progress

GRAPH = "graph"
"""The name of the kind of tasks that travel as data."""

RECORD_FILE = "task.json"


@final
class TaskExaminer(Examiner):
    """An examiner that measures a run as its task defines, while none of its trials runs."""

    def __init__(self, objective: TaskObjective) -> None:
        self._task, self._in_use = objective.task, objective.in_use

    def show(self, loss: float) -> tuple[str, float]:
        return self._task.show(loss)

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        with self._in_use:
            return self._task.evaluate(weights, threads=threads)

    def film(self, weights: Float32Array) -> Film:
        return self._task.film(weights)

    def texts(self, weights: Float32Array, prompts: Sequence[str]) -> list[tuple[str, str]]:
        with self._in_use:
            return self._task.texts(weights, prompts)

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return self._task.state_dict(weights, about)

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        del weights, about
        raise ValueError(
            f"onnx: expected the recurrent network, got a task of kind {self._task.kind}; export safetensors, load "
            "them into your module, and call torch.onnx.export with an input of yours"
        )


@final
class TaskKind(Kind):
    """A kind whose tasks define everything but the settings of the run."""

    options = TaskOptions

    def __init__(self, name: str, *, may_write_texts: bool = False) -> None:
        self.name, self.may_write_texts = name, may_write_texts

    def start(
        self,
        config: RunConfig,
        task: NamedTask | None,
        *,
        folder: DataFolder,
        measure: Measure,
        progress: Progress,
    ) -> Prepared:
        del folder, progress
        named = self._needed(task)
        blocks = _blocks(named.task)
        objective = TaskObjective(named.task, seed=config.run.seed, device=config.volunteers.device)
        settled, reasons = settle(config, objective, blocks[0] if blocks else {}, measure)
        objective = objective.measuring(settled.strategy.measure)
        prepared, notes = _prepared(self.name, settled, named, objective, blocks)
        record = TaskRecord(
            layout=objective.layout,
            reads=dict(named.task.reads),
            batch_size=objective.batch_size,
            unit=objective.unit,
            work_per_member=objective.work_per_member,
            identity=named.identity,
            n_blocks=len(blocks),
            registered=registered(named.task) if isinstance(named.task, EnvironmentTask) else None,
        )
        files = {_block_file(number): encode_block(block) for number, block in enumerate(blocks)}
        files[RECORD_FILE] = msgspec.json.encode(record)
        return msgspec.structs.replace(prepared, files=files, reasons=(*reasons, *notes))

    def reopen(self, config: RunConfig, task: NamedTask | None, *, folder: DataFolder) -> Prepared:
        try:
            record = msgspec.json.decode(folder.read(RECORD_FILE), type=TaskRecord)
            blocks = tuple(decode_block(folder.read(_block_file(number))) for number in range(record.n_blocks))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{RECORD_FILE}: expected the files of the run's task, got: {error}") from error
        if task is not None:
            objective = TaskObjective(
                task.task, seed=config.run.seed, device=config.volunteers.device, batch_size=record.batch_size
            )
            changed = _changed(task, record)
            prepared, notes = _prepared(self.name, config, task, objective, blocks)
            return msgspec.structs.replace(prepared, reasons=(*changed, *notes))
        return Prepared(
            config=config,
            objective=RecordedObjective(record, seed=config.run.seed),
            examiner=(
                RecordedExaminer(record.layout)
                if record.registered is None
                else RegisteredExaminer(record.registered, record.layout)
            ),
            invitation=invitation_of(
                self.name, seed=config.run.seed, batch_size=record.batch_size, identity=record.identity
            ),
            blocks=blocks,
            steps_per_block=_steps_per_block(config, blocks),
        )

    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        del max_bytes  # the sizes come from the person's own file
        named = self._needed(task)
        return joined(named, invitation, device=device)

    def _needed(self, task: NamedTask | None) -> NamedTask:
        if task is None:
            raise ValueError(
                f"task: expected a file, since this run trains a task of kind {self.name} whose code does not travel; "
                "name your copy of it with --task FILE.py:NAME"
            )
        return task


SUPERVISED, FUNCTION, ENVIRONMENT = (TaskKind(name) for name in ("supervised", "function", "environment"))
REWARD, CUSTOM_KIND = (TaskKind(name, may_write_texts=True) for name in ("reward", CUSTOM))


def _changed(task: NamedTask, record: TaskRecord) -> Reasons:
    """A note about a task whose source has changed since the run began.

    Raises:
        ValueError: more than its source has changed.
    """
    different = differences(task.identity, record.identity)
    if vital := [what for what in different if what != "source"]:
        raise ValueError(
            f"task: expected the {' and '.join(vital)} that the run began with, got other ones from {task.entry}; "
            "put them back, or start a new run"
        )
    sentence = "task: its source has changed since the run began; volunteers need the present one"
    return (Reason(sentence),) if different else ()


def _prepared(
    name: str, config: RunConfig, named: NamedTask, objective: TaskObjective, blocks: tuple[Columns, ...]
) -> tuple[Prepared, Reasons]:
    """The task ready for training, and notes about whether it travels."""
    shared, note = _shared(named.task, objective, config)
    prepared = Prepared(
        config=config,
        objective=objective if shared is None else shared.objective,
        examiner=TaskExaminer(objective),
        invitation=invitation_of(
            name if shared is None else GRAPH,
            seed=config.run.seed,
            batch_size=objective.batch_size,
            identity=named.identity,
            attachment=b"" if shared is None else shared.attachment,
        ),
        blocks=blocks,
        steps_per_block=_steps_per_block(config, blocks),
        entry=named.entry,
        needs_task=shared is None,
        is_start_shared=shared is None,
    )
    return prepared, note


class _Shared(msgspec.Struct, frozen=True, eq=False):
    """A task that travels as data."""

    attachment: bytes
    objective: TaskObjective
    """The objective of volunteers, which audits compute again: a graph may draw and round otherwise than its module."""


def _shared(task: Task, objective: TaskObjective, config: RunConfig) -> tuple[_Shared | None, Reasons]:
    """The task as data, None where it is not to travel or can't, and a note that says so."""
    share = options_of(config).share
    if share == "nothing":
        return None, ()
    try:
        attachment = task.as_graph(batch_size=objective.batch_size)
        graph = received(attachment, start=task.tensors)
    except ValueError as error:
        if share == "graph":
            raise ConfigError(f"share: expected a task that travels as a graph, got another: {error}") from error
        return None, (Reason(str(error), "share", "nothing"),)
    shared = _Shared(attachment, TaskObjective(graph, seed=config.run.seed, device=config.volunteers.device))
    return shared, (Reason("volunteers need no file of the task's", "share", "graph"),)


def _blocks(task: Task) -> tuple[Columns, ...]:
    """The data, cut into blocks where they are too large for one."""
    if task.data and n_rows(task.data) == 0:
        raise ConfigError("data: expected rows to train on, got none")
    return tuple(cut(task.data))


def _steps_per_block(config: RunConfig, blocks: tuple[Columns, ...]) -> int:
    return options_of(config).steps_per_block if len(blocks) > 1 else 0


def _block_file(number: int) -> str:
    return f"block-{number}.safetensors"

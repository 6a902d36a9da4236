from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig, Schema
from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.graph import GraphError
from fedlearn.tasks.blocks import Columns, block_name, cut, decode_block
from fedlearn.tasks.kind import Kind, Prepared
from fedlearn.tasks.rnn.options import RnnOptions
from fedlearn.tasks.task import Batch, Members
from fedlearn.tasks.torch_graph import kind as graph_kind
from fedlearn.tasks.torch_graph.kind import GraphKind
from fedlearn.tasks.user import task_kind as task_kind_module
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.record import RecordedObjective, TaskRecord
from fedlearn.tasks.user.task_kind import ENVIRONMENT, FUNCTION, REWARD, SUPERVISED, TaskKind
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions, options_of
from fedlearn.text.source import NoProgress
from tests.run_folders import STRATEGY
from tests.tasks.counting import CountingTask
from tests.tasks.memory_folder import MemoryFolder

KIND = TaskKind("counting")
TENSORS = {"matrix": np.ones((4, 3), dtype=np.float32)}
DATA: Columns = {"x": np.arange(10.0), "row": np.arange(10) % 4}


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def received(attachment: bytes, *, start: dict[str, Float32Array]) -> CountingTask:
        return CountingTask(start, batch_size=int(attachment.split()[-1]))

    monkeypatch.setattr(task_kind_module, "received", received)


class SharedTask(CountingTask):
    """One that travels as a graph."""

    def as_graph(self, *, batch_size: int = 0) -> bytes:
        return b"graph of %d" % batch_size


def config_of(**settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    return Schema(TaskOptions).build({**STRATEGY, "seed": 7, **settings})


def named(task: CountingTask | None = None, source: bytes = bytes(16)) -> NamedTask:
    return NamedTask(task or CountingTask(TENSORS, DATA), "/here/count.py:task", source)


def started(task: NamedTask | None = None, **settings: Any) -> Prepared:  # noqa: ANN401
    return KIND.start(
        config_of(**settings),
        task or named(),
        folder=MemoryFolder({}),
        measure=lambda *_: 1000.0,
        progress=NoProgress(),
    )


def reopened(prepared: Prepared, task: NamedTask | None, files: dict[str, bytes] | None = None) -> Prepared:
    folder = MemoryFolder(prepared.files if files is None else files)
    return KIND.reopen(prepared.config, task, folder=folder)


def test_the_four_ways_to_make_a_task_are_kinds() -> None:
    kinds: list[Kind] = [SUPERVISED, FUNCTION, ENVIRONMENT, REWARD]
    assert [kind.name for kind in kinds] == ["supervised", "function", "environment", "reward"]
    assert {kind.options for kind in kinds} == {TaskOptions}


def test_a_task_whose_code_does_not_travel_has_to_be_named_by_volunteers() -> None:
    prepared = started()
    assert prepared.entry == "/here/count.py:task"
    assert prepared.needs_task
    assert prepared.is_start_shared
    invitation = prepared.invitation
    assert (invitation.kind, invitation.seed, invitation.attachment) == ("counting", 7, b"")
    assert invitation.options == {"batch_size": 3}
    assert invitation.identity == named().identity
    assert [*map(str, prepared.reasons)] == ["share = nothing: a task of kind counting is code, which does not travel"]


@pytest.mark.parametrize("share", ["auto", "graph"])
def test_a_task_that_is_data_travels_as_a_graph_with_the_servers_start(share: str) -> None:
    prepared = started(named(SharedTask(TENSORS, DATA)), share=share)
    assert (prepared.invitation.kind, prepared.invitation.attachment) == ("graph", b"graph of 3")
    assert not prepared.needs_task
    assert not prepared.is_start_shared
    assert [*map(str, prepared.reasons)] == ["share = graph: volunteers need no file of the task's"]


def test_the_objective_of_a_run_is_that_of_its_volunteers() -> None:
    task = SharedTask(TENSORS, DATA)
    by_file, as_graph = started(named(task), share="nothing").objective, started(named(task)).objective
    assert isinstance(by_file, TaskObjective)
    assert isinstance(as_graph, TaskObjective)
    assert by_file.task is task
    assert as_graph.task is not task
    assert as_graph.layout == by_file.layout
    np.testing.assert_array_equal(as_graph.initial_weights(), by_file.initial_weights())


def test_a_graph_that_cannot_be_run_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_kind_module, "received", Mock(side_effect=GraphError("graph: expected less, got more")))
    prepared = started(named(SharedTask(TENSORS, DATA)))
    assert (prepared.needs_task, [*map(str, prepared.reasons)]) == (
        True,
        ["share = nothing: graph: expected less, got more"],
    )


def test_nothing_travels_where_nothing_is_to_be_shared() -> None:
    prepared = started(named(SharedTask(TENSORS, DATA)), share="nothing")
    assert (prepared.invitation.kind, prepared.needs_task, prepared.reasons) == ("counting", True, ())


def test_a_graph_is_refused_of_a_task_that_has_none() -> None:
    with pytest.raises(ConfigError, match="share: expected a task that travels as a graph, got another: a task of"):
        started(share="graph")


def test_what_is_left_open_is_chosen_and_said() -> None:
    prepared = started(named(SharedTask(TENSORS, DATA)), sigma=0.0)
    assert prepared.config.strategy.sigma == 0.02
    assert [reason.key for reason in prepared.reasons] == ["sigma", "share"]


def test_its_examiner_is_the_task() -> None:
    task = CountingTask(TENSORS, DATA)
    task.show = lambda loss: ("beans", -loss)  # type: ignore[method-assign]
    task.evaluate = lambda weights, *, threads: {"size": float(weights.size + threads)}  # type: ignore[method-assign]
    examiner = started(named(task)).examiner
    assert examiner.show(2.0) == ("beans", -2.0)
    assert examiner.validate(np.zeros(12, dtype=np.float32), threads=3) == {"size": 15.0}


def test_the_files_of_a_run_hold_its_data_and_a_record_of_its_task() -> None:
    files = started().files
    assert set(files) == {"task.json", "block-0.safetensors"}
    assert block_name(decode_block(files["block-0.safetensors"])) == block_name(DATA)
    record = msgspec.json.decode(files["task.json"], type=TaskRecord)
    assert (record.layout, record.identity, record.n_blocks) == (named().task.layout, named().identity, 1)
    assert (record.batch_size, record.unit, record.work_per_member, record.reads) == (3, "beans", 3, {})


def test_a_run_by_losses_may_have_other_rows_than_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SharedTask(TENSORS, DATA)
    monkeypatch.setattr(own, "batch_size_by_losses", 2)
    prepared = started(named(own))
    assert prepared.objective.work_per_member == 2
    assert prepared.invitation.options == {"batch_size": 2}
    assert prepared.invitation.attachment == b"graph of 2"
    record = msgspec.json.decode(prepared.files["task.json"], type=TaskRecord)
    assert (record.batch_size, record.work_per_member, own.batch_size) == (2, 2, 3)
    # The run goes on with the rows that it began with, whatever the task has by now.
    monkeypatch.setattr(own, "batch_size_by_losses", 4)
    for task in (named(own), None):
        again = reopened(prepared, task)
        assert again.objective.work_per_member == 2
        assert again.invitation.options == {"batch_size": 2}
    assert reopened(prepared, named(own)).invitation.attachment == b"graph of 2"


def test_a_task_without_data_has_one_block_that_is_empty() -> None:
    prepared = started(named(CountingTask(TENSORS)))
    assert (prepared.blocks, prepared.named_blocks) == ((), {b"": {}})
    assert set(prepared.files) == {"task.json"}


def test_data_that_are_too_large_for_a_block_come_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(steps_per_block=5).steps_per_block == 0
    monkeypatch.setattr(task_kind_module, "cut", lambda columns: cut(columns, 64))
    prepared = started(steps_per_block=5)
    assert (len(prepared.blocks), prepared.steps_per_block) == (3, 5)
    assert [file for file in sorted(prepared.files) if file != "task.json"] == [
        f"block-{number}.safetensors" for number in range(3)
    ]
    again = reopened(prepared, None)
    assert (list(again.named_blocks), again.steps_per_block) == (list(prepared.named_blocks), 5)


def test_data_without_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="data: expected rows to train on, got none"):
        started(named(CountingTask(TENSORS, {"x": np.zeros((0, 2))})))


def test_a_run_is_opened_again_with_its_task_and_the_data_of_its_files() -> None:
    prepared = started()
    other_data = CountingTask(TENSORS, {"x": np.ones(3)})
    again = reopened(prepared, named(other_data))
    assert isinstance(again.objective, TaskObjective)
    assert again.objective.task is other_data
    assert list(again.named_blocks) == list(prepared.named_blocks)
    assert again.invitation == prepared.invitation
    assert again.needs_task
    assert again.files == {}


def test_without_its_task_a_run_is_opened_just_to_be_replayed() -> None:
    prepared = started()
    again = reopened(prepared, None)
    assert isinstance(again.objective, RecordedObjective)
    assert again.objective.layout == prepared.objective.layout
    assert list(again.named_blocks) == list(prepared.named_blocks)
    assert again.invitation.identity == prepared.invitation.identity


def test_a_task_whose_source_has_changed_goes_on_with_a_word_about_it() -> None:
    again = reopened(started(), named(source=b"x" * 16))
    assert again.reasons[0].why == "task: its source has changed since the run began; volunteers need the present one"
    assert again.invitation.identity["source"] == "78" * 16


def test_a_task_with_other_tensors_cannot_go_on() -> None:
    other = CountingTask({"matrix": TENSORS["matrix"].T}, DATA)
    other.frozen_arrays = {"extra": np.ones(2, dtype=np.float32)}
    with pytest.raises(
        ValueError, match=r"expected the frozen tensors and tensors that the run began with, got .* from /here/count"
    ):
        reopened(started(), named(other))


@pytest.mark.parametrize("name", ["task.json", "block-0.safetensors"])
@pytest.mark.parametrize(
    "content", [None, b"", b"{}", b"nonsense", pytest.param(b'{"other":' + b"[" * 100_000, id="deep")]
)
def test_files_that_are_damaged_or_missing_are_refused(name: str, content: bytes | None) -> None:
    prepared = started()
    files = {other: payload for other, payload in prepared.files.items() if other != name}
    if content is not None:
        files[name] = content
    with pytest.raises(ValueError, match=r"task\.json: expected the files|block: expected safetensors"):
        reopened(prepared, None, files)


def test_a_volunteer_joins_with_the_same_task() -> None:
    joined = KIND.join(started().invitation, named(), device="cpu")
    assert isinstance(joined, TaskObjective)
    assert joined.layout == started().objective.layout


def test_a_volunteer_without_the_task_or_with_another_is_told_what_to_do() -> None:
    invitation = started().invitation
    with pytest.raises(ValueError, match=r"a task of kind counting whose code does not travel; name your copy of it"):
        KIND.join(invitation, None, device="cpu")
    with pytest.raises(ValueError, match="task: expected the server's source, got other ones"):
        KIND.join(invitation, named(source=b"x" * 16), device="cpu")


class DrawnTask(CountingTask):
    """One whose first weights and frozen tensors are random."""

    def draw_weights(self, seed: int) -> None:
        self._tensors = {"matrix": np.full((4, 3), seed, dtype=np.float32)}
        self.frozen_arrays = {"bias": np.full(2, seed, dtype=np.float32)}


@pytest.mark.parametrize("way", ["start", "reopen", "join"])
def test_first_weights_are_of_the_runs_seed(way: str) -> None:
    prepared = started(named(DrawnTask(TENSORS, DATA)))
    objective = prepared.objective
    if way == "reopen":
        objective = reopened(prepared, named(DrawnTask(TENSORS, DATA))).objective
    elif way == "join":
        joined = KIND.join(prepared.invitation, named(DrawnTask(TENSORS, DATA)), device="cpu")
        assert isinstance(joined, TaskObjective)
        objective = joined
    np.testing.assert_array_equal(objective.initial_weights(), np.full(12, 7.0, dtype=np.float32))


def test_who_has_a_copy_of_a_shared_task_draws_its_frozen_tensors_from_the_runs_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph_kind, "received", lambda *_: CountingTask(TENSORS))
    invitation = started(named(DrawnTask(TENSORS, DATA))).invitation
    joined = GraphKind().join(invitation, named(DrawnTask(TENSORS, DATA)), device="cpu")
    assert isinstance(joined, TaskObjective)


def test_a_server_needs_the_task_too() -> None:
    with pytest.raises(ValueError, match="task: expected a file"):
        KIND.start(config_of(), None, folder=MemoryFolder({}), measure=lambda *_: 1.0, progress=NoProgress())


def test_options_of_another_kind_are_a_defect() -> None:
    with pytest.raises(AssertionError, match="expected TaskOptions, got RnnOptions"):
        options_of(Schema(RnnOptions).build({}))


def test_a_look_at_the_model_and_trials_never_use_the_task_at_once() -> None:
    held: list[bool] = []
    objectives: list[TaskObjective] = []

    class Watched(CountingTask):
        def losses(self, members: Members, batch: Batch) -> Float32Array:
            held.append(objectives[0].in_use.locked())
            return np.asarray(super().losses(members, batch), dtype=np.float32)

        def evaluate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
            held.append(objectives[0].in_use.locked())
            return super().evaluate(weights, threads=threads)

    prepared = started(named(Watched(TENSORS, DATA)))
    objective = prepared.objective
    assert isinstance(objective, TaskObjective)
    objectives.append(objective)
    weights = objective.initial_weights()
    trials = Trials(step=0, perturbation=Perturbation(0.1, 1), group_size=4, first_member=0, n_members=4)
    objective.evaluate(weights, DATA, trials, threads=1)
    prepared.examiner.validate(weights, threads=1)
    assert held == [True, True]
    assert not objective.in_use.locked()

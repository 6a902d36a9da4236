import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig, to_json
from fedlearn.runs import history
from fedlearn.runs.run import (
    KIND_FILE,
    Run,
    age_of,
    edited_settings,
    find,
    kind_named,
    kind_of,
    load_run_config,
    named_task,
    needing_task,
    task_flag,
)
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder
from fedlearn.tasks.rnn.kind import KIND as RNN
from fedlearn.tasks.user.record import RecordedObjective
from fedlearn.tasks.user.task_kind import CUSTOM_KIND, FUNCTION
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.run_folders import created, fit_task, reopened, task_config, update_of


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a task called `task`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "mine.py"
    path.write_text(
        "from fedlearn import function\n\n"
        "task = function(lambda arrays: (arrays['vector'] ** 2).sum(), {'vector': [1.0, 2.0, 3.0]}, covariance=False)\n"
    )
    return path


def test_run_that_was_created_is_found_as_it_was(run: Run, config: RunConfig) -> None:
    for text in ("latest", "1", str(run.folder.path)):
        found = find(config.run.runs, text)
        assert found.folder == run.folder
        assert found.config == config.replace({"optimizer": "adam"})
        assert found.prepared.invitation == run.prepared.invitation
        assert list(found.prepared.named_blocks) == list(run.prepared.named_blocks)
        assert found.prepared.objective.layout == run.prepared.objective.layout
        replica = history.replay(found).holding.replica
        figures = [
            prepared.examiner.validate(replica.weights, threads=1) for prepared in (run.prepared, found.prepared)
        ]
        assert figures[0] == figures[1] != {}


def test_run_whose_text_is_gone_is_still_complete(run: Run, config: RunConfig) -> None:
    Path(*config.get("data")).unlink()
    assert list(reopened(run).prepared.named_blocks) == list(run.prepared.named_blocks)


def test_damaged_configuration_is_named(run: Run) -> None:
    run.folder.config.write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_run_config(run.folder)


def test_a_run_whose_values_were_taken_away_is_refused(run: Run) -> None:
    text = run.folder.config.read_text()
    run.folder.config.write_text(text.replace('"hidden_size": 8', '"hidden_size": 0').replace('"sigma": 0.02,', ""))
    with pytest.raises(ConfigError, match=r"^sigma, hidden_size: expected the values of the run, got 0 from .*json"):
        load_run_config(run.folder)


def test_folder_that_does_not_say_its_kind_is_refused(run: Run) -> None:
    path = run.folder.data / KIND_FILE
    path.unlink()
    with pytest.raises(
        StorageError, match=rf"{path}: expected the kind of the run's task: .*; the run may be of an older"
    ):
        find(run.config.run.runs, "1")


def test_folder_without_its_data_is_to_be_restored(run: Run) -> None:
    shutil.rmtree(run.folder.data)
    with pytest.raises(
        StorageError, match=rf"{run.folder.data}: expected the folder of the run's data, got none; restor"
    ):
        find(run.config.run.runs, "1")


def test_kind_that_is_not_installed_is_named_with_those_that_are(run: Run) -> None:
    (run.folder.data / KIND_FILE).write_text("transformer\n")
    with pytest.raises(ValueError, match=r"expected one of custom, environment, function, .*got 'transformer'"):
        kind_of(run.folder)


def test_kind_of_a_run_stands_in_its_folder(run: Run, tmp_path: Path) -> None:
    assert kind_of(run.folder) is RNN
    assert kind_of(created(task_config(tmp_path), fit_task()).folder) is FUNCTION


def test_what_a_configuration_trains_is_a_kind_or_a_task_in_a_file(task_file: Path) -> None:
    assert named_task("rnn") is None
    assert kind_named("rnn", None) is RNN
    task = named_task(f"{task_file}:task")
    assert task is not None
    assert task.entry == f"{task_file}:task"
    assert kind_named("whatever", task) is FUNCTION


def test_run_is_found_with_its_tasks_code_or_with_enough_to_replay_it(task_file: Path, tmp_path: Path) -> None:
    entry = f"{task_file}:task"
    run = created(task_config(tmp_path, task=entry), named_task(entry))
    assert isinstance(find(run.config.run.runs, "1", task=entry).prepared.objective, TaskObjective)
    found = find(run.config.run.runs, "1")
    assert isinstance(found.prepared.objective, RecordedObjective)
    task_file.unlink()
    assert find(run.config.run.runs, "1").prepared.objective.layout == run.prepared.objective.layout
    with pytest.raises(ValueError, match="which does not exist here"):
        find(run.config.run.runs, "1", task=entry)


def test_commands_about_a_run_name_its_code_or_the_place_for_it(run: Run, tmp_path: Path) -> None:
    assert task_flag(run.folder, run.config) == ""  # a kind that needs none
    of_script = created(task_config(tmp_path), fit_task())
    config = of_script.config.replace({"task": "rnn"})
    assert task_flag(of_script.folder, config) == " --task FILE.py:NAME"
    assert task_flag(of_script.folder, config.replace({"task": "a b.py:task"})) == " --task 'a b.py:task'"
    assert "if you trust it, add: --task FILE.py:NAME" in str(needing_task(of_script.folder, config, "this"))


def test_task_of_another_kind_is_not_the_runs(run: Run, task_file: Path) -> None:
    with pytest.raises(ValueError, match=r"--task: expected a task of kind rnn, .* got .* of kind function; leave it"):
        find(run.config.run.runs, "1", task=f"{task_file}:task")


def test_run_of_a_custom_task_is_found_with_its_code_and_without(task_file: Path, tmp_path: Path) -> None:
    entry = f"{task_file}:task"
    task_file.write_text(task_file.read_text() + 'task.kind = "thirst"\n')
    run = created(task_config(tmp_path, task=entry), named_task(entry))
    assert kind_of(run.folder) is CUSTOM_KIND
    assert isinstance(find(run.config.run.runs, "1", task=entry).prepared.objective, TaskObjective)
    assert isinstance(find(run.config.run.runs, "1").prepared.objective, RecordedObjective)


def test_run_does_not_go_on_with_another_task_than_it_began_with(task_file: Path, tmp_path: Path) -> None:
    entry = f"{task_file}:task"
    run = created(task_config(tmp_path, task=entry), named_task(entry))
    task_file.write_text(task_file.read_text() + "# a remark\n")
    assert "its source has changed" in find(run.config.run.runs, "1", task=entry).prepared.reasons[0].why
    task_file.write_text(task_file.read_text().replace("3.0]", "3.0, 4.0]"))
    with pytest.raises(ValueError, match="task: expected the tensors that the run began with"):
        find(run.config.run.runs, "1", task=entry)


def test_holding_has_all_blocks_and_no_replica_yet(config: RunConfig) -> None:
    run = created(config, new_tokens_interval=3, block_tokens=500)
    holding = run.holding(threads=1)
    assert not holding.has_replica
    for name, block in run.prepared.named_blocks.items():
        assert np.array_equal(holding.block(name)["tokens"], block["tokens"])
    with pytest.raises(ValueError, match="00ff"):
        holding.block(b"\x00\xff")


def test_snapshot_does_not_change_with_the_replica(run: Run) -> None:
    replica = history.replay(run).holding.replica
    snapshot = replica.snapshot()
    replica.apply(update_of(run, 0))
    assert run.holding().load(snapshot) == snapshot.digest != replica.digest


def test_age_is_since_the_last_file_was_written(run: Run) -> None:
    run.folder.metrics.touch()
    for file, age in ((run.folder.config, 3000), (run.folder.metrics, 2000)):
        os.utime(file, (time.time() - age,) * 2)
    assert age_of(run.folder) == pytest.approx(2000, abs=60)


def test_folder_that_is_no_run_is_told_with_those_that_are(run: Run) -> None:
    with pytest.raises(StorageError, match=r"run '2': expected a run folder's path, .*: 1$"):
        find(run.config.run.runs, "2")
    assert not RunFolder(run.folder.path.parent / "2").config.exists()


@pytest.mark.parametrize(
    ("key", "value"), [("seed", 2), ("hidden_size", 16), ("embedding_scale", 1.0), ("rank", 0), ("context", 3)]
)
def test_settings_that_determine_a_run_are_those_it_was_begun_with(run: Run, key: str, value: float) -> None:
    reopened(run, step_num=3, learning_rate=0.5, steps=9)
    run.folder.config.write_text(to_json(run.config.replace({key: value})))
    with pytest.raises(ConfigError, match=f"{key}: expected {run.config.get(key)}, .* got {value} from .*config"):
        find(run.config.run.runs, "1")


@pytest.mark.parametrize("name", ["train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"])
def test_data_that_determine_a_run_are_those_it_was_begun_with(run: Run, name: str) -> None:
    path = run.folder.data / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(StorageError, match=f"{path}: expected the file that the run was begun with"):
        find(run.config.run.runs, "1")


def test_settings_that_were_altered_since_the_newest_checkpoint_are_named(run: Run) -> None:
    assert edited_settings(run.folder, run.config.replace({"step_num": 7})) == []
    assert edited_settings(run.folder, run.config.replace({"sigma": 0.5})) == [
        f"sigma: 0.5 in {run.folder.config}, it was 0.02 when genesis.safetensors was written"
    ]


def test_identity_of_a_run_is_the_same_wherever_it_was_made(config: RunConfig, tmp_path: Path) -> None:
    one, two, other = created(config), created(config), created(config, seed=2)
    assert one.origin.identity == two.origin.identity == reopened(one).origin.identity != other.origin.identity
    assert set(one.origin.files) == {path.name for path in one.folder.data.iterdir()}
    task = created(task_config(tmp_path), fit_task())
    assert set(task.origin.files) == {"task.json", KIND_FILE}
    assert "step_num" not in one.origin.settings
    assert not {"runs", "steps", "learning_rate", "task"} & set(one.origin.settings)

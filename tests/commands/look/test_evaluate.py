import json
import re
import shlex
from pathlib import Path

import pytest

from fedlearn.commands.command_line import main
from fedlearn.commands.look.evaluate import eval_command
from fedlearn.commands.look.sample import sample_command
from fedlearn.runs import history
from fedlearn.runs.run import Run, named_task
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.segment import read_places, segments_in
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.samples import Sample
from tests.commands.recorded_run import options_of
from tests.run_folders import created, fit_task, task_config, write_text
from tests.storage.journals import flip


def test_eval_measures_the_weights_at_the_journals_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert eval_command(options_of(run)) == 0
    holding = history.replay(run).holding
    (expected,) = run.prepared.examiner.validate(holding.replica.weights, threads=1).values()
    assert f"step 5: {expected:.3f} bits/character on the run's held-out data" in capsys.readouterr().out


def test_programs_are_told_figures_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert eval_command(options_of(run, json=True)) == 0
    told = json.loads(capsys.readouterr().out)
    figures = run.prepared.examiner.validate(history.rebuilt_at(run).holding.replica.weights, threads=1)
    assert told == {"run": "1", "step": 5, "data": None, "figures": figures}


@pytest.mark.parametrize("step", [2, "best"])
def test_eval_measures_the_weights_of_a_step(run: Run, step: int | str, capsys: pytest.CaptureFixture[str]) -> None:
    log = LineLog(run.folder.samples)
    for at, bits in ((1, 3.0), (2, 2.0), (5, 2.5)):
        log.append(Sample(step=at, time=0.0, figures={"bits_per_character": bits}, text=""))
    log.close()
    assert eval_command(options_of(run, step=step, json=True)) == 0
    told = json.loads(capsys.readouterr().out)
    weights = history.rebuilt_at(run, 2).holding.replica.weights
    assert (told["step"], told["figures"]) == (2, run.prepared.examiner.validate(weights, threads=1))
    assert told["figures"] != run.prepared.examiner.validate(history.rebuilt_at(run).holding.replica.weights, threads=1)


@pytest.mark.parametrize(("step", "reason"), [(6, "at most 5 from"), (0, "1 or more, where the run begins")])
def test_a_step_that_the_run_does_not_have_is_refused(run: Run, step: int, reason: str) -> None:
    with pytest.raises(StorageError, match=f"step: expected .*{reason}.*, got {step}"):
        eval_command(options_of(run, step=step))


def test_eval_measures_another_text(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = write_text(tmp_path / "other.txt", length=1000)
    assert eval_command(options_of(run, data=[str(other)])) == 0
    assert f"bits/character on {other}" in capsys.readouterr().out


FIT = """import fedlearn
task = fedlearn.function(lambda arrays: float((arrays["x"] ** 2).sum()), {"x": [3.0, 4.0]}, covariance=False)
data = {"y": [1.0, 2.0]}
silent = fedlearn.function(lambda arrays, rows: 0.0, {"x": [3.0, 4.0]}, data)
"""


def fitted(folder: Path, name: str) -> Run:
    """A run of a task in a file, which has taken no step yet."""
    (folder / "fit.py").write_text(FIT)
    entry = f"{folder / 'fit.py'}:{name}"
    return created(task_config(folder, task=entry), named_task(entry))


def test_eval_measures_a_task_by_its_own_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert eval_command(options_of(fitted(tmp_path, "task"), task=f"{tmp_path / 'fit.py'}:task")) == 0
    assert capsys.readouterr().out == "run 1, step 0: loss 25 on the run's held-out data\n"


def test_what_a_task_can_not_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    run = fitted(tmp_path, "silent")
    entry = f"{tmp_path / 'fit.py'}:silent"
    with pytest.raises(ValueError, match="run 1: expected a task with metrics, got one without"):
        eval_command(options_of(run, task=entry))
    with pytest.raises(ValueError, match="--data: expected a run that trains on text, got another; leave it out"):
        eval_command(options_of(run, data=["text.txt"], task=entry))
    with pytest.raises(ValueError, match="run 1: expected a model that writes text, got a task of kind function; try"):
        sample_command(options_of(run))


def test_damage_behind_the_newest_checkpoint_is_told_and_the_last_good_state_shown(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = segments_in(run.folder.journal)
    flip(segment, [*read_places(segment)][2].begin + 20)
    assert eval_command(options_of(run)) == 0
    shown = capsys.readouterr()
    assert "run 1, step 3: " in shown.out
    assert f"{segment}: damaged at byte" in shown.err


def test_task_whose_source_has_changed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    run = fitted(tmp_path, "task")
    (tmp_path / "fit.py").write_text(FIT + "# a remark\n")
    assert eval_command(options_of(run, task=f"{tmp_path / 'fit.py'}:task")) == 0
    assert "its source has changed since the run began" in capsys.readouterr().err


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("verb", ["eval", "sample", "export", "replay"])
def test_code_that_only_the_runs_folder_names_is_never_run(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = fitted(tmp_path, "task")
    (tmp_path / "fit.py").write_text("raise AssertionError('this code was run')")
    called(verb, "1", "--runs", run.config.run.runs)
    shown = capsys.readouterr()
    assert "this code was run" not in shown.err + shown.out
    if verb == "eval":
        typed = f"eval 1 --runs {run.config.run.runs} --task {tmp_path / 'fit.py'}:task"
        assert re.search(rf"if you trust it, type: \S+ {re.escape(typed)}\n$", shown.err)
    if verb == "export":
        assert "the task's code was not named (--task FILE.py:NAME" in shown.err
        assert (tmp_path / "run-1.safetensors").exists()


@pytest.mark.parametrize("arguments", [("eval", "1"), ("sample", "1", "--video", "a.gif"), ("serve", "--resume", "1")])
def test_code_of_a_script_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    created(task_config(tmp_path, task="rnn"), fit_task())  # as where a script made the task
    assert called(*arguments, "--runs", str(tmp_path / "runs")) != 0
    assert "--task: expected the file of the run's task, since" in (said := capsys.readouterr().err)
    assert said.endswith("--task FILE.py:NAME\n")
    typed = f"{shlex.join([*arguments, '--runs', str(tmp_path / 'runs')])} --task FILE.py:NAME"
    assert arguments[0] == "serve" or f" {typed}" in said.partition("if you trust it, type: ")[2]


def test_code_that_is_named_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run, entry = fitted(tmp_path, "task"), f"{tmp_path / 'fit.py'}:task"
    for verb in ("eval", "export"):
        assert called(verb, "1", "--runs", run.config.run.runs, "--task", entry) == 0
    (tmp_path / "fit.py").write_text("raise AssertionError('this code was run')")
    assert called("eval", "1", "--runs", run.config.run.runs, "--task", entry) == 1
    assert "AssertionError: this code was run" in capsys.readouterr().err

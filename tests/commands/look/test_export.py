from pathlib import Path

import pytest

from fedlearn.commands.look.export import export_command
from fedlearn.runs.run import Run
from tests.commands.recorded_run import damage_checkpoint, options_of
from tests.run_folders import created, fit_task, task_config


def test_export_says_what_was_written(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.safetensors"
    assert export_command(options_of(run, to=str(path), format=None)) == 0
    assert capsys.readouterr().out == f"{path}: the state_dict, with the weights of step 5 of run 1\n"
    assert path.exists()


def test_the_weights_of_a_step_are_exported(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / name for name in ("two.safetensors", "newest.safetensors")]
    for path, step in zip(paths, (2, None), strict=True):
        assert export_command(options_of(run, to=str(path), format=None, step=step)) == 0
    assert "with the weights of step 2 of run 1" in capsys.readouterr().out
    assert paths[0].read_bytes() != paths[1].read_bytes()


def test_figures_are_those_of_all_steps(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--step: expected none for csv, which has all steps, got 2; leave it out"):
        export_command(options_of(run, to=str(tmp_path / "out.csv"), format=None, step=2))


def test_figures_need_no_weights(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.genesis.unlink()
    damage_checkpoint(run)
    assert export_command(options_of(run, to=str(tmp_path / "out"), format="csv")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: the figures of 4 steps of run 1\n"


def test_figures_of_a_task_need_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = created(task_config(tmp_path, task="gone.py:task"), fit_task())
    assert export_command(options_of(run, to=str(tmp_path / "out.csv"), format=None)) == 0
    assert "the figures of 0 steps" in capsys.readouterr().out


def test_what_was_passed_over_is_told(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = damage_checkpoint(run)
    assert export_command(options_of(run, to=str(tmp_path / "out.safetensors"), format=None)) == 0
    shown = capsys.readouterr()
    assert "checkpoint skipped" in shown.err
    assert name in shown.err

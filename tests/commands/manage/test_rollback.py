import argparse

import pytest

from fedlearn.commands.look.replay import replay_command
from fedlearn.commands.manage.rollback import rollback_command
from fedlearn.runs.run import Run
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.lines import LineLog, read_lines
from fedlearn.storage.logs.samples import Sample
from fedlearn.storage.runs import lock_run
from fedlearn.system.invocation import invocation
from tests.commands.recorded_run import options_of
from tests.run_folders import reopened


def options(run: Run, step: int | str) -> argparse.Namespace:
    return argparse.Namespace(run="1", runs=run.config.run.runs, step=step)


def test_rollback_says_where_the_run_stands_and_what_was_set_aside(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollback_command(options(run, 2)) == 0
    shown = capsys.readouterr().out
    assert f"set aside in {run.folder.path / 'set-aside/1'}: checkpoints/000000000003.safetensors, journal/" in shown
    assert f"run 1 stands at step 2; go on with: {invocation('serve')} --resume {run.folder.path}\n" in shown
    trainer, _ = Trainer.open(reopened(run))
    trainer.close()
    assert trainer.replica.step == 2
    assert replay_command(options_of(run)) == 0
    assert "step 2: digest" in capsys.readouterr().out


def test_a_run_goes_back_to_its_best_weights(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    log = LineLog(run.folder.samples)
    for step, bits in ((2, 3.0), (4, 2.0), (5, 2.5)):
        log.append(Sample(step=step, time=0.0, figures={"bits_per_character": bits}, text=""))
    log.close()
    assert rollback_command(options(run, "best")) == 0
    assert "run 1 stands at step 4; go on with" in capsys.readouterr().out
    assert [sample.step for sample in read_lines(run.folder.samples, Sample)] == [2, 4]


def test_run_that_a_server_writes_is_not_taken_back(run: Run) -> None:
    before = {path: path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file() and path.name != "lock"}
    with (
        lock_run(run.folder),
        pytest.raises(StorageError, match=r"expected a run that no process uses, but process \d+"),
    ):
        rollback_command(options(run, 2))
    assert before == {path: path.read_bytes() for path in before}

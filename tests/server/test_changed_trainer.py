"""A setting that changes at work, as the trainer passes it on and keeps it."""

from unittest.mock import Mock, patch

import pytest

from fedlearn.config import ConfigError, RunConfig
from fedlearn.coordination.operator import RunOperator
from fedlearn.runs.run import edited_settings, load_run_config
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.logs.changes import Change
from fedlearn.storage.logs.lines import read_lines
from tests.run_folders import created, reopened


def test_changed_setting_reaches_the_steps_and_the_next_checkpoint(config: RunConfig) -> None:
    run, operator = created(config), Mock(spec=RunOperator)
    trainer, _ = Trainer.open(run)
    assert trainer.change(operator, "learning-rate", "0.5", 3.0) == "learning_rate: 0.5, it was 0.02"
    trainer.change(operator, "steps", "9", 4.0)
    plan, strategy, now = operator.change.call_args.args
    assert (plan.steps, strategy.optimizer.learning_rate, now) == (9, 0.5, 4.0)
    trainer.save_checkpoint()
    trainer.close()
    written = [
        (change.step, change.key, change.value, change.before) for change in read_lines(run.folder.changes, Change)
    ]
    assert written == [(0, "learning_rate", 0.5, 0.02), (0, "steps", 9, 0)]
    kept = load_run_config(run.folder)
    assert (kept.optimizer.learning_rate, kept.run.steps) == (0.5, 9)
    assert edited_settings(run.folder, kept) == []
    assert reopened(run).config == kept


def test_bound_that_follows_a_rate_is_told_and_written_with_its_cause(config: RunConfig) -> None:
    run = created(config.replace({"max_learning_rate": 0.5}))
    trainer, _ = Trainer.open(run)
    assert trainer.change(Mock(spec=RunOperator), "learning-rate", "0.25", 3.0) == (
        "learning_rate: 0.25, it was 0.02; "
        "max_learning_rate is now 0, it was 0.5, since learning_rate stays as it is set"
    )
    assert trainer.change(Mock(spec=RunOperator), "learning-rate", "0.25", 3.0) == "learning_rate: 0.25, it was 0.25"
    trainer.close()
    written = {change.key: (change.value, change.along_with) for change in read_lines(run.folder.changes, Change)}
    assert written == {"learning_rate": (0.25, ""), "max_learning_rate": (0.0, "learning_rate")}


def test_bound_of_the_journal_and_the_time_of_samples_change_at_once(config: RunConfig) -> None:
    trainer, _ = Trainer.open(created(config))
    with trainer._journal as journal, patch.object(journal, "keep") as keep:
        trainer.change(Mock(spec=RunOperator), "keep_journal", "5MB", 3.0)
        trainer.change(Mock(spec=RunOperator), "keep_journal", "all", 3.0)
    assert [call.args for call in keep.call_args_list] == [(5_000_000,), (None,)]
    trainer.change(Mock(spec=RunOperator), "sample_time", "7", 3.0)
    assert trainer.sample_time == 7.0
    trainer.close()


def test_run_that_is_told_to_finish_lets_its_rate_fall_and_writes_each_change_down(config: RunConfig) -> None:
    run, operator = created(config), Mock(spec=RunOperator)
    trainer, _ = Trainer.open(run)
    assert trainer.finish(operator, 4, 2, 3.0) == 6
    plan, strategy, _ = operator.change.call_args.args
    assert plan.steps == strategy.schedule.steps == 6
    assert strategy.schedule.learning_rate == "inverse-sqrt", "as before, and not as if the end had always been known"
    assert strategy.schedule.factors == ((4, 0.75), (5, 0.25), (6, 1.0))
    trainer.close()
    written = {change.key: change.value for change in read_lines(run.folder.changes, Change)}
    factors = {"learning_rate_schedule": "inverse-sqrt", "learning_rate_factors": "4:0.75 5:0.25 6:1"}
    assert written == {"steps": 6, **factors}


def test_refused_setting_changes_nothing(config: RunConfig) -> None:
    run, operator = created(config), Mock(spec=RunOperator)
    trainer, _ = Trainer.open(run)
    with pytest.raises(ConfigError, match="hidden_size"):
        trainer.change(operator, "hidden_size", "9", 3.0)
    trainer.close()
    assert trainer.run is run
    assert not run.folder.changes.exists()
    operator.change.assert_not_called()

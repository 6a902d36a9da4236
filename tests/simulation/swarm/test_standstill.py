"""Runs by gradients that begin again because their loss stands still."""

from pathlib import Path

import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.replica import BEST
from fedlearn.es.snapshot import START
from fedlearn.runs import history
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.task import Batch, LossGradients
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, reopened, task_config
from tests.simulation.swarm.stage import Stage, StageOf
from tests.tasks.counting import CountingTask

TOO_LONG = 2.0
"""A rate by which each step goes as far beyond the least loss as it was before it."""
SETTINGS = {
    "measure": "gradients",
    "optimizer": "sgd",
    "beta1": 0.0,
    "learning_rate_schedule": "constant",
    "group_size": 1,
    "population_limit": 2,
    "max_population": 2,
    "time_per_step": 60,
}


class Valley(CountingTask):
    """Half of the square of the distance from 1, of each weight."""

    kind = "custom"

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        n_groups = len(batch.seeds)
        losses = np.full(n_groups, 1.0 + 0.5 * ((weights - 1.0) ** 2).mean(), dtype=np.float32)
        return LossGradients(losses, (n_groups * (weights - 1.0)).astype(np.float32))


def flat(_: Valley, weights: Float32Array, batch: Batch) -> LossGradients:
    """A loss that nothing lowers."""
    return LossGradients(np.ones(len(batch.seeds), dtype=np.float32), np.ones_like(weights))


TASK = NamedTask(Valley({"w": np.zeros((3, 4), dtype=np.float32)}), "valley.py:task", bytes(16))


def staged(folder: Path, stage_of: StageOf, *, steps: int, restarts: int = 3) -> Stage:
    settings = {**SETTINGS, "learning_rate": TOO_LONG, "steps": steps, "restarts": restarts}
    return stage_of(created(task_config(folder, **settings), TASK), TASK)


def test_a_run_with_too_long_steps_begins_again_and_learns_and_all_replicas_with_it(
    tmp_path: Path, stage_of: StageOf
) -> None:
    stage = staged(tmp_path, stage_of, steps=220)
    for step in (0, 30, 100, 101, 150, 210):
        stage.go_to(step)
        stage.join()
    stage.settle()
    assert stage.drifted() == []
    updates = list(read_journal(stage.run.folder.journal))
    moves = {step: update.attempt.move for step, update in enumerate(updates) if update.attempt is not None}
    assert {step: move for step, move in moves.items() if move != "on"} == {99: "keep", 100: "anew", 200: "settle"}
    assert [round(updates[step].optimizer.learning_rate, 3) for step in (100, 101, 219)] == [2.0, 0.667, 0.667]
    losses = [metrics.loss for metrics in stage.swarm.metrics]
    assert (losses[100], losses[101], losses[219]) == (1.5, 1.5, 1.0)
    assert not {START, BEST} & set(stage.trainer.replica.slots)
    assert history.replay(reopened(stage.run)).holding.replica.digest == stage.trainer.replica.digest
    assert [told for told in stage.swarm.notices if "100 steps" in told] == [
        "the loss is 1.5 after 100 steps, no lower than before; so many are tried from the first weights with "
        "learning_rate = 0.67 in place of 2",
        "with learning_rate = 0.67 the loss is 1 after 100 steps; the run goes on so",
    ]
    assert not any("target_loss" in told for told in stage.swarm.notices), "which gradients have none of"


def test_a_server_that_was_stopped_goes_on_in_the_same_attempt(tmp_path: Path, stage_of: StageOf) -> None:
    stage = staged(tmp_path, stage_of, steps=150)
    stage.join()
    stage.settle()
    stage.close()
    again = stage_of(reopened(stage.run, steps=230), TASK)
    again.join()
    again.settle()
    updates = list(read_journal(stage.run.folder.journal))
    assert {update.optimizer.learning_rate for update in updates[101:]} == {TOO_LONG / 3}
    attempts = [update.attempt for update in updates[101:]]
    assert {attempt.began for attempt in attempts if attempt is not None} == {101}
    assert [attempt.move for attempt in attempts if attempt is not None and attempt.move != "on"] == ["settle"]


def test_a_run_that_lower_rates_do_not_help_goes_on_where_it_was(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Valley, "loss_gradients", flat)
    stage = staged(tmp_path, stage_of, steps=220, restarts=1)
    stage.join()
    stage.go_to(100)
    kept = stage.trainer.replica.weights.copy()
    stage.go_to(201)
    np.testing.assert_array_equal(stage.trainer.replica.weights, kept)
    stage.join()
    stage.go_to(202)
    assert not {START, BEST} & set(stage.trainer.replica.slots)
    stage.settle()
    assert stage.drifted() == []
    updates = list(read_journal(stage.run.folder.journal))
    moves = [update.attempt.move for update in updates if update.attempt is not None and update.attempt.move != "on"]
    assert moves == ["keep", "anew", "back", "settle"]
    rates = [round(update.optimizer.learning_rate, 3) for update in updates]
    assert rates == [2.0] * 101 + [0.667] * 100 + [2.0] * 19


def test_a_run_without_restarts_keeps_its_rate_and_no_first_weights(tmp_path: Path, stage_of: StageOf) -> None:
    stage = staged(tmp_path, stage_of, steps=120, restarts=0)
    stage.join()
    stage.settle()
    updates = list(read_journal(stage.run.folder.journal))
    assert {update.optimizer.learning_rate for update in updates} == {TOO_LONG}
    assert [update.attempt for update in updates] == [None] * 120
    assert START not in stage.trainer.replica.slots

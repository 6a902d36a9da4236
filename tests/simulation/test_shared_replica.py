from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedlearn.coordination.effects import Apply, Begin, Build, Evaluate, Load, StoreBlock
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.shared_replica import SharedReplica
from fedlearn.tasks.strategy import strategy_of
from fedlearn.wire.messages import DataBlock, Start, Welcome
from tests.run_folders import created, fit_task, rnn_config, task_config, update_of


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    config = rnn_config(tmp_path, perturb="activations", head="closed-form", control_variates=False)
    opened, _ = Trainer.open(created(config))
    yield opened
    opened.close()


@pytest.fixture
def replica(trainer: Trainer) -> SharedReplica:
    """Before the first step, as one volunteer loads it."""
    shared = SharedReplica()
    shared.perform(Build(Welcome("1", trainer.run.prepared.invitation)))
    block, _ = trainer.data_block(next(iter(trainer.run.prepared.named_blocks)))
    assert isinstance(block, DataBlock)
    shared.perform(StoreBlock(block))
    assert shared.perform(Load(snapshot_of(trainer))) == trainer.replica.digest
    return shared


def snapshot_of(trainer: Trainer) -> Snapshot:
    (message, _), *_ = trainer.weights_messages(may_replay=False)
    assert isinstance(message, Snapshot)
    return message


def trials_of(trainer: Trainer, step: int) -> Evaluate:
    strategy = strategy_of(trainer.run.config)
    trials = Trials(step, strategy.perturbation, strategy.group_size, 0, 2 * strategy.group_size)
    return Evaluate(trials, next(iter(trainer.run.prepared.named_blocks)))


def test_a_step_is_taken_once_and_everybody_is_told_its_digest(trainer: Trainer, replica: SharedReplica) -> None:
    first, second = (update_of(trainer.run, step) for step in (0, 1))
    start, snapshot = trainer.replica.digest, snapshot_of(trainer)
    digests = [trainer.apply(update) for update in (first, second)]
    assert [replica.perform(Apply(first)) for _ in range(3)] == [digests[0]] * 3
    assert replica.perform(Load(snapshot)) == start, "a late one still begins where all began"
    assert [replica.perform(Apply(second)) for _ in range(2)] == [digests[1]] * 2
    assert replica.perform(Apply(first)) == digests[0]


def test_trials_of_the_present_step_are_run_and_those_of_a_closed_one_only_answered(
    trainer: Trainer, replica: SharedReplica
) -> None:
    evaluate = trials_of(trainer, 0)
    real = replica.perform(evaluate)
    replica.perform(Apply(update_of(trainer.run, 0)))
    late = replica.perform(evaluate)
    assert isinstance(real, TrialResults)
    assert isinstance(late, TrialResults)
    assert np.all(real.losses > 0.0)
    np.testing.assert_array_equal(late.losses, np.zeros(real.losses.size, dtype=np.float32))
    assert late.estimate.n_bytes == real.estimate.n_bytes > 0


def test_a_start_that_all_can_make_is_made_once(tmp_path: Path) -> None:
    task = fit_task()
    trainer, _ = Trainer.open(created(task_config(tmp_path), task))
    shared = SharedReplica(task)
    shared.perform(Build(Welcome("1", trainer.run.prepared.invitation)))
    (start, _), *_ = trainer.weights_messages(may_replay=True)
    assert isinstance(start, Start)
    assert shared.perform(Begin(start)) == trainer.replica.digest
    updates = [update_of(trainer.run, step) for step in (0, 1)]
    digests = [trainer.apply(update) for update in updates]
    assert shared.perform(Apply(updates[0])) == digests[0]
    assert shared.perform(Begin(start)) == start.digest
    assert shared.perform(Apply(updates[1])) == digests[1]
    trainer.close()

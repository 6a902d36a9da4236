from typing import Any

import numpy as np
import pytest

from fedlearn.config import RunConfig
from fedlearn.runs import history
from fedlearn.storage.checkpoint import latest_checkpoint, read_checkpoint
from fedlearn.storage.journal.journal import read_journal
from tests.run_folders import created
from tests.simulation.swarm.stage import StageOf, journal_of


def test_swarm_learns(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=60, population_limit=256)).train()
    losses = [metrics.loss for metrics in stage.swarm.metrics]
    assert len(losses) == 60
    first, last = (np.mean([loss for loss in part if loss is not None]) for part in (losses[:5], losses[-5:]))
    assert last < 0.85 * first


@pytest.mark.parametrize("volunteers", [1, 2, 3])
def test_all_replicas_are_equal_after_every_step(config: RunConfig, stage_of: StageOf, volunteers: int) -> None:
    stage = stage_of(created(config, steps=8)).train(volunteers=volunteers)
    assert stage.drifted() == []
    for participant in stage.participants:
        assert stage.followed(participant) == list(range(1, 9))


def test_second_volunteer_does_not_change_the_bits(config: RunConfig, stage_of: StageOf) -> None:
    one, two = (created(config, steps=8) for _ in range(2))
    stage_of(one).train(volunteers=1)
    stage = stage_of(two).train(volunteers=2)
    assert {metrics.volunteers for metrics in stage.swarm.metrics[1:]} == {2}
    assert journal_of(one) == journal_of(two)
    assert latest_checkpoint(one.folder)[0].snapshot.digest == latest_checkpoint(two.folder)[0].snapshot.digest


def test_volunteer_with_all_processors_gives_the_same_bits(config: RunConfig, stage_of: StageOf) -> None:
    one, two = (created(config, steps=5) for _ in range(2))
    stage_of(one).train()
    stage = stage_of(two)
    stage.join(threads=0)
    stage.settle()
    assert stage.drifted() == []
    assert journal_of(one) == journal_of(two)


@pytest.mark.parametrize(
    "changes",
    [
        {"fitness_shaping": "centered-ranks"},
        {"fitness_shaping": "sign"},
        {"rank": 0},
        {"rank": 2},
        {"optimizer": "sgd", "learning_rate": 1.0},
        {"optimizer": "lion", "learning_rate": 0.01},
        {"optimizer": "clipup", "learning_rate": 0.01},
        {"n_layers": 2},
        {"batch_size": 2},
        {"context": 0},
        {"tokenizer": "bytes"},
        {"documents": "blank-lines"},
        {"group_size": 5},
        {"seed": 2**63 - 1},
    ],
    ids=lambda changes: " ".join(f"{key}={value}" for key, value in changes.items()),
)
def test_every_choice_of_a_run_gives_equal_replicas(
    config: RunConfig, stage_of: StageOf, changes: dict[str, Any]
) -> None:
    run = created(config, steps=5, **changes)
    stage = stage_of(run).train(volunteers=2)
    assert stage.drifted() == []
    for participant in stage.participants:
        assert stage.followed(participant) == [1, 2, 3, 4, 5]
    assert history.replay(run).holding.replica.digest == stage.trainer.replica.digest
    assert stage.trainer.replica.digest != read_checkpoint(run.folder.genesis).snapshot.digest


def test_replicas_stay_equal_across_token_blocks_with_a_late_joiner(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=20, new_tokens_interval=2, block_tokens=600)
    assert len(run.prepared.blocks) == 6
    stage = stage_of(run)
    stage.join()
    stage.go_to(5)
    late = stage.join()
    late.is_stalled = True  # it is sent the Updates of several blocks before it can load the Snapshot
    stage.go_to(11)
    late.is_stalled = False
    stage.settle()
    stage.close()
    assert stage.drifted() == []
    assert stage.followed(late)[-1] == 20
    assert len({update.block for update in read_journal(run.folder.journal)}) == 6
    assert stage.swarm.metrics[-1].volunteers == 2
    assert history.replay(run).holding.replica.digest == stage.trainer.replica.digest

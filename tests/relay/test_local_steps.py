"""Local steps behind a relay: each of its machines takes a group, as if it had joined the server itself."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.user.named_task import NamedTask
from tests.relay.branch import Branch, branch_of
from tests.run_folders import created, task_config
from tests.simulation.swarm.stage import Stage
from tests.simulation.test_local_steps import DATA, MATRIX, TENSORS, Pulled

STEPS = 6
N_LOCAL = 3


def stage_in(folder: Path, tensors: Mapping[str, Float32Array] = TENSORS, **more: float) -> tuple[Stage, Branch]:
    """A run of local steps, with a relay that holds the weights."""
    task = NamedTask(Pulled(tensors, DATA, batch_size=8), "pulled.py:task", bytes(16))
    settings: dict[str, str | float] = {"measure": "gradients", "group_size": 1, "population_limit": 2}
    settings |= {"learning_rate": 0.05, "audit": 0.0, "local_steps": N_LOCAL, **more}
    config = task_config(folder, **settings, steps=STEPS, max_population=64)
    stage = Stage(created(config, task), task)
    relay = branch_of(stage.swarm, "relay", stage.clock, task=task)
    while relay.coordinator is None:
        assert stage.advance()
    return stage, relay


def members_of(stage: Stage) -> list[int]:
    """The members of each step of the run."""
    stage.settle()
    stage.close()
    assert stage.swarm.reason == f"all {STEPS} steps are done"
    return [metrics.members for metrics in stage.swarm.metrics]


@pytest.mark.parametrize("n_machines", [1, 4])
def test_each_machine_behind_a_relay_takes_a_group(tmp_path: Path, n_machines: int) -> None:
    stage, relay = stage_in(tmp_path)
    for number in range(n_machines):
        relay.join(f"volunteer {number}")
    members = members_of(stage)
    assert members[0] == 2 * N_LOCAL  # before the relay has said how many machines it has
    assert members[2:] == [n_machines * 2 * N_LOCAL] * (STEPS - 2)
    assert [metrics.volunteers for metrics in relay.metrics][2:] == [n_machines] * (STEPS - 2)


def test_machines_behind_a_relay_behind_a_relay_count_and_those_without_weights_do_not(tmp_path: Path) -> None:
    stage, relay = stage_in(tmp_path)
    relay.join("volunteer")
    relay.join("stalled").is_stalled = True
    inner = relay.branch("inner")
    while inner.coordinator is None:
        assert stage.advance()
    for number in range(3):
        inner.join(f"inner volunteer {number}")
    assert members_of(stage)[-2:] == [4 * 2 * N_LOCAL] * 2


def test_sums_of_a_relay_take_part_in_steps_of_four_bits(tmp_path: Path) -> None:
    stage, relay = stage_in(tmp_path, MATRIX, sum_bits=4, local_steps=1)
    for number in range(3):
        relay.join(f"volunteer {number}")
    assert members_of(stage)[-1] > 0
    assert {update.estimate.is_packed for update in read_journal(stage.run.folder.journal)} == {True}

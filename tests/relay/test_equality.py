"""Flat, behind a relay, or behind two of them: the same members take the same steps to the bit."""

from typing import Any

import pytest

from fedlearn.config import RunConfig
from fedlearn.coordination.work import slices
from fedlearn.runs.run import Run
from fedlearn.simulation.swarm import Participant
from tests.relay.branch import Branch, branch_of
from tests.run_folders import created
from tests.simulation.swarm.stage import Stage, StageOf

STEPS = 6

WAYS: dict[str, dict[str, Any]] = {
    "replayed": {},
    "summed": {"exchange": "sum"},
    "summed at rank 3": {"exchange": "sum", "rank": 3, "fitness_shaping": "sign"},
    "rounded sums": {"perturb": "activations", "sigma": 0.05},
}

way = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def _groups_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is rounded is a Result's sum, which must not depend on who was there when."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(slices, "SUM_SLICE_S", 0.0)


def relay_of(stage: Stage, name: str = "relay", **given: Any) -> Branch:  # noqa: ANN401
    """One that holds the weights."""
    branch = branch_of(stage.swarm, name, stage.clock, **given)
    while branch.coordinator is None:
        assert stage.advance()
    return branch


def finish(stage: Stage) -> list[str]:
    """The digest after each step of the run."""
    stage.settle()
    assert stage.swarm.reason is not None
    assert stage.swarm.reason.endswith("steps are done")
    stage.close()
    return [metrics.digest for metrics in stage.swarm.metrics]


def digest_of(participant: Participant | Branch) -> str:
    assert participant.volunteer.replica is not None
    return participant.volunteer.replica.digest.hex()


def flat(stage_of: StageOf, run: Run) -> list[str]:
    stage = stage_of(run)
    for _ in range(4):
        stage.join()
    return finish(stage)


@way
def test_one_relay_takes_the_steps_of_the_flat_run(
    config: RunConfig, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    digests = flat(stage_of, created(config, steps=STEPS, **settings))
    stage = stage_of(created(config, steps=STEPS, **settings))
    relay = relay_of(stage)
    volunteers = [relay.join(f"volunteer {number}") for number in range(4)]
    assert finish(stage) == digests
    assert {metrics.members for metrics in stage.swarm.metrics} == {64}
    assert [metrics.volunteers for metrics in stage.swarm.metrics] == [1] * STEPS
    assert relay.metrics[-1].volunteers == 4
    assert [metrics.digest for metrics in relay.metrics] == digests
    has_controls = settings.get("perturb") == "activations"
    for metrics in (*stage.swarm.metrics, *relay.metrics):
        assert (metrics.variance_left is not None) == has_controls
    assert [digest_of(relay), *map(digest_of, volunteers)] == [digests[-1]] * 5
    relay.settle()
    assert relay.ending == f"all {STEPS} steps are done"
    assert all(each.left_by is not None and not each.left_by.is_welcome_back for each in volunteers)


@way
def test_relay_under_a_relay_takes_the_steps_of_the_flat_run(
    config: RunConfig, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    digests = flat(stage_of, created(config, steps=STEPS, **settings))
    stage = stage_of(created(config, steps=STEPS, **settings))
    upper = relay_of(stage)
    lower = upper.branch("lower")
    while lower.coordinator is None:
        assert stage.advance()
    volunteers = [lower.join("Ada"), lower.join("Bob"), upper.join("Cid")]
    stage.join()
    assert finish(stage) == digests
    upper.settle()
    lower.settle()
    assert [digest_of(upper), digest_of(lower), *map(digest_of, volunteers)] == [digests[-1]] * 5

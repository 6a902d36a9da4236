from typing import Any

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.forecast import forecast
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.journal.segment import encode_step
from fedlearn.tasks.strategy import strategy_of
from tests.run_folders import created
from tests.simulation.swarm.stage import StageOf


@pytest.mark.parametrize("population", [64, 256, 4096])
@pytest.mark.parametrize("volunteers", [1, 2])
def test_traffic_of_a_step_is_little_more_than_losses_and_utilities(
    config: RunConfig, stage_of: StageOf, population: int, volunteers: int
) -> None:
    stage = stage_of(created(config, steps=12, population_limit=population)).train(volunteers=volunteers)
    for metrics in stage.swarm.metrics[6:]:
        assert metrics.members == population
        assert metrics.volunteers == volunteers
        traffic = metrics.bytes_in + metrics.bytes_out
        assert 5 * population < traffic
        assert traffic <= 1.2 * (4 * population + volunteers * (population + 280))


@pytest.mark.parametrize("volunteers", [1, 2])
@pytest.mark.parametrize(
    "choices",
    [
        {"population_limit": 64},
        {"population_limit": 8192},
        {"exchange": "sum", "population_limit": 256, "hidden_size": 64},
        {"exchange": "sum", "population_limit": 4096, "hidden_size": 64, "rank": 2},
        {"perturb": "activations", "population_limit": 64},
        {"perturb": "activations", "population_limit": 512, "head": "closed-form", "hidden_size": 64},
    ],
    ids=str,
)
def test_a_run_sends_and_keeps_what_it_said_before(
    config: RunConfig, stage_of: StageOf, choices: dict[str, Any], volunteers: int
) -> None:
    run = created(config, steps=12, **choices)
    strategy, layout = strategy_of(run.config), run.prepared.objective.layout
    expected = forecast(strategy, layout, n_volunteers=volunteers)
    stage = stage_of(run).train(volunteers=volunteers)
    steps = stage.swarm.metrics[6:]
    received = sum(step.bytes_out for step in steps) / len(steps) / volunteers
    sent = sum(step.bytes_in for step in steps) / len(steps) / volunteers
    records = [encode_step(update, bytes(8)) for update in read_journal(run.folder.journal)][6:]
    kept = sum(map(len, records)) / len(records)
    figures = (expected.received, received), (expected.sent, sent), (expected.journal, kept)
    print("expected and real bytes of a step, received, sent and kept:", *figures)
    for said, real in figures:
        assert said == pytest.approx(real, rel=0.05)

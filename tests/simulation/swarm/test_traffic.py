import pytest

from fedlearn.config import RunConfig
from tests.runs import created
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
        assert traffic <= 1.2 * (4 * population + volunteers * (population + 260))

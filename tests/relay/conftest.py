from collections.abc import Iterator

import pytest

from fedlearn.server.run import Run
from fedlearn.tasks.named_task import NamedTask
from tests.simulation.swarm.stage import Stage, StageOf


@pytest.fixture
def stage_of() -> Iterator[StageOf]:
    """Stages that are closed in the end."""
    stages = []

    def opened(run: Run, task: NamedTask | None = None) -> Stage:
        stages.append(Stage(run, task))
        return stages[-1]

    yield opened
    for stage in stages:
        stage.close()

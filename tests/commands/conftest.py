import pytest

from fedlearn.config import RunConfig
from fedlearn.server.run import Run
from tests.commands.recorded_run import recorded_run


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run whose newest checkpoint is of step 3 and whose journal and metrics end at step 5."""
    return recorded_run(config)

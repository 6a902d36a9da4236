import pytest

from fedlearn.commands.join import join
from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from tests.commands.recorded_run import recorded_run


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run whose newest checkpoint is of step 3 and whose journal and metrics end at step 5."""
    return recorded_run(config)


@pytest.fixture(autouse=True)
def process_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins makes the whole process small, for good."""
    monkeypatch.setattr(join, "give_way", lambda: None)
    monkeypatch.setattr(join, "limit_memory", lambda *_: None)
    monkeypatch.setattr(join, "keep_memory", lambda: None)

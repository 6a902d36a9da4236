"""A folder of runs, behind the page whose connections are limited."""

from pathlib import Path

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from tests.run_folders import created


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def root(run: Run) -> Path:
    return run.folder.path.parent

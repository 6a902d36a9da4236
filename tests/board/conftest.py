"""A board over a folder of runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedlearn.board.app import Board
from fedlearn.config import RunConfig
from fedlearn.server.run import Run
from tests.runs import created

TOKEN = "a token of this board"


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def root(run: Run) -> Path:
    return run.folder.path.parent


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    with TestClient(Board(root, token=TOKEN).app()) as opened:
        yield opened

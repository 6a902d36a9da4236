"""A board over a folder of runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedlearn.board.app import Board
from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from fedlearn.web.names import Names
from tests.run_folders import created

TOKEN = "a token of this board"
NAMES = Names(80, is_public=False)
ADDRESS = "http://127.0.0.1"


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def root(run: Run) -> Path:
    return run.folder.path.parent


@pytest.fixture
def board(root: Path) -> Board:
    return Board(root, token=TOKEN, names=NAMES)


@pytest.fixture
def client(board: Board) -> Iterator[TestClient]:
    with TestClient(board.app(), ADDRESS) as opened:
        yield opened

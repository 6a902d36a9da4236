from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog, and another one looks on. " * 60)
    return str(path)


def test_local_steps_send_less_than_steps_that_are_exchanged(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--steps", "4", "--volunteers", "2", "--local-steps", "1", "4", "--rates", "0.01")
    adam, each, alone = read_json("local_steps", *given)["rows"]
    assert [row["exchanges"] for row in (adam, each, alone)] == [4, 4, 1]
    assert adam["megabytes"] > each["megabytes"] > 3 * alone["megabytes"]
    for row in (adam, each, alone):
        assert 0 < row["loss"] < 9


def test_slow_lines_have_local_steps(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--volunteers", "2", "--mbit", "1", "--seconds", "5")
    each, chosen = read_json("local_steps", *given)["lines"]
    assert (each["local_steps"], chosen["local_steps"]) == ("1", "by the lines")
    assert each["last_local_steps"] == 1
    assert chosen["last_local_steps"] > 8

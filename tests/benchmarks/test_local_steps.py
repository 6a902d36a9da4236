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
    rows = read_json("local_steps", *given)["rows"]
    adam, each, each_packed, alone, alone_packed = rows
    assert [row["exchanges"] for row in rows] == [4, 4, 4, 1, 1]
    assert [row["sum_bits"] for row in rows] == [32, 8, 4, 8, 4]
    assert adam["megabytes"] > each["megabytes"] > 3 * alone["megabytes"]
    assert each["megabytes"] > 1.5 * each_packed["megabytes"] > 4 * alone_packed["megabytes"]
    for row in rows:
        assert 0 < row["loss"] < 9


def test_slow_lines_have_local_steps(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--volunteers", "2", "--mbit", "1", "--seconds", "5")
    each, chosen = read_json("local_steps", *given)["lines"]
    assert (each["local_steps"], chosen["local_steps"]) == ("1", "by the lines")
    assert each["last_local_steps"] == 1
    assert chosen["last_local_steps"] > 8

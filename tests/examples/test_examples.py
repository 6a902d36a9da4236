"""The examples, as short as they are and as they stand."""

import ast
from pathlib import Path
from typing import Any

import pytest

import fedlearn
from fedlearn.storage.task_file import load_task

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "cnn": ["torch", "sklearn"],
    "digits": ["torch", "sklearn"],
    "residual": ["torch"],
    "sums": ["torch", "transformers"],
    "cartpole": ["torch", "gymnasium"],
    "valley": [],
}
FRONT_ENDS = ["mesh", "tp", "boss", "ppl", "provider", "worker"]
"""Scripts with the names of other systems, which are tried in tests/acceptance."""

SETTINGS: dict[str, Any] = {"group_size": 16, "population_limit": 32, "time_per_step": 60.0}


def test_there_is_no_other_example() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted([*NEEDS, *FRONT_ENDS])


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_is_short_and_says_both_commands(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) < 40
    said = ast.get_docstring(ast.parse(text)) or ""
    assert f"python server.py --task examples/{name}.py:task" in said
    assert "python client.py" in said


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_front_end_is_short_and_says_its_command(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 120
    assert f" examples/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_trains(name: str, tmp_path: Path) -> None:
    for module in NEEDS[name]:
        pytest.importorskip(module)
    task = load_task(f"{EXAMPLES / name}.py:task").task
    trained = fedlearn.train(task, steps=2, runs=tmp_path, threads=1, **SETTINGS)
    assert all(loss is not None for loss in trained.losses)
    assert trained.figures

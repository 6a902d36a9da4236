"""The examples, as short as they are and as they stand."""

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlearn
from fedlearn.storage.task_file import load_task
from tests.end_to_end.processes import run

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "cnn": ["torch", "sklearn"],
    "digits": ["torch", "sklearn"],
    "residual": ["torch"],
    "sums": ["torch", "transformers"],
    "cartpole": ["gymnasium"],
    "pendulum": ["gymnasium"],
    "valley": [],
}
FRONT_ENDS = ["mesh", "tp", "boss", "ppl", "provider", "worker"]
"""Scripts with the names of other systems, which are tried in tests/acceptance."""

SETTINGS: dict[str, Any] = {"group_size": 16, "population_limit": 32, "time_per_step": 60.0}


def test_there_is_no_other_example() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted([*NEEDS, *FRONT_ENDS, "tour"])


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


def test_the_loss_that_the_valley_shows_falls_all_the_way(tmp_path: Path) -> None:
    task = load_task(f"{EXAMPLES / 'valley.py'}:task").task
    losses = np.array(fedlearn.train(task, steps=250, population_limit=64, runs=tmp_path).losses)
    means = losses.reshape(5, 50).mean(axis=1).tolist()
    assert means == sorted(means, reverse=True)
    assert means[-1] < 4.0 < 8.0 < means[0]


def test_the_tour_shows_a_step_and_equal_digests() -> None:
    tour = EXAMPLES / "tour.py"
    assert len(tour.read_text().splitlines()) <= 150
    done = run(str(tour), folder=EXAMPLES)
    assert done.returncode == 0, done.stderr
    for said in ("Assignment measure members 0 to 3", "Result     their losses are", "Update     utilities"):
        assert said in done.stdout
    digests = re.findall(r"(\w+) is before step 3, with digest (\w+)", done.stdout)
    assert [name for name, _ in digests] == ["server", "Ada", "Bob"]
    assert len({digest for _, digest in digests}) == 1


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_trains(name: str, tmp_path: Path) -> None:
    for module in NEEDS[name]:
        pytest.importorskip(module)
    task = load_task(f"{EXAMPLES / name}.py:task").task
    trained = fedlearn.train(task, steps=2, runs=tmp_path, threads=1, **SETTINGS)
    assert all(loss is not None for loss in trained.losses)
    assert trained.figures

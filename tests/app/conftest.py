"""A run small enough to train in milliseconds."""

import random
from pathlib import Path

import pytest

from fedlearn.config import RunConfig

TEXT = "the small red bird sings and flies over hills and rivers when the winter comes to a quiet end"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text file of 4,000 characters, in paragraphs."""
    words, choices = TEXT.split(), random.Random(5)
    text = ""
    while len(text) < 4000:
        text += " ".join(choices.choices(words, k=8)) + choices.choice([".\n", ".\n\n"])
    path = tmp_path / "corpus.txt"
    path.write_text(text[:4000], encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path, corpus: Path) -> RunConfig:
    return RunConfig(
        hidden_size=8,
        population_limit=64,
        group_size=8,
        context=4,
        sequence_length=8,
        sigma=0.02,
        learning_rate=0.02,
        data=str(corpus),
        runs=str(tmp_path / "runs"),
        time_per_step=10.0,
        checkpoint_time=1e6,
    )

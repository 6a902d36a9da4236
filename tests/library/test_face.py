"""`import fedlearn`: every name is there, and none costs anything until it is asked for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedlearn

REPOSITORY = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "rich", "matplotlib", "pandas", "gymnasium", "tensorboard")
NEEDS_TORCH = {"reward", "supervised"}


def imported(program: str) -> str:
    """What Python says of each import."""
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stderr


def test_a_clean_import_takes_nothing_heavy_along() -> None:
    loaded = {name.strip() for name in re.findall(r"\| ([\w. ]+)\n", imported("import fedlearn"))}
    assert "fedlearn" in loaded
    assert loaded & set(HEAVY) == set()


@pytest.mark.parametrize("name", fedlearn.__all__)
def test_every_public_name_is_there(name: str) -> None:
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    assert getattr(fedlearn, name).__doc__
    assert name in dir(fedlearn)


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = fedlearn.trian

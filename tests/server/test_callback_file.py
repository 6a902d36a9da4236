from pathlib import Path

import pytest

from fedlearn.callback import Callback
from fedlearn.server.callback_file import load_callback

FILE = """
from fedlearn import Callback

class Mine(Callback):
    word = "mine"

one = Mine()

def make():
    return Mine()

def make_nothing():
    return None

number = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "listeners_of_ones_own.py").write_text(FILE)
    return str(tmp_path / "listeners_of_ones_own.py")


@pytest.mark.parametrize("name", ["Mine", "one", "make"])
def test_a_callback_is_named_itself_or_by_what_makes_it(file: str, name: str) -> None:
    found = load_callback(f"{file}:{name}")
    assert isinstance(found, Callback)
    assert found.word == "mine"  # type: ignore[attr-defined]


def test_a_module_that_is_installed_may_name_one() -> None:
    assert isinstance(load_callback("fedlearn.simulation.kept:Kept"), Callback)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("Mine", "expected FILE.py:NAME or MODULE:NAME, got 'Mine'"),
        (":Mine", "expected FILE.py:NAME or MODULE:NAME"),
        ("missing.py:Mine", "expected a Python file, got 'missing.py'"),
        ("{file}:make_nothing", "expected a fedlearn.Callback called make_nothing in .*, got None"),
        ("{file}:number", "expected a fedlearn.Callback called number in .*, got 7"),
        ("{file}:missing", "expected a fedlearn.Callback called missing in .*, got None"),
    ],
)
def test_what_is_no_callback_is_refused_with_what_it_is(file: str, entry: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_callback(entry.format(file=file))


def test_module_that_is_missing_is_said_with_what_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^--callback: expected the module nobody.*; install"):
        load_callback("nobody_wrote_this:Mine")

import sys
from pathlib import Path

import pytest

from fedlearn.commands.invocation import invocation


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment in it, of which nothing is on the path."""
    for name in ("python", "fedlearn"):
        program = tmp_path / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


@pytest.mark.parametrize(
    ("called", "verb", "expected"),
    [
        ("server.py", "serve", ".venv/bin/python server.py"),
        ("client.py", "join", ".venv/bin/python client.py"),
        ("server.py", "runs", ".venv/bin/python -m fedlearn runs"),
        ("{here}/.venv/bin/fedlearn", "serve", ".venv/bin/fedlearn serve"),
        ("{here}/fedlearn/__main__.py", "serve", ".venv/bin/python -m fedlearn serve"),
        ("/usr/bin/pytest", "join", ".venv/bin/python -m fedlearn join"),
    ],
)
def test_verb_is_called_as_this_process_was(
    here: Path, monkeypatch: pytest.MonkeyPatch, called: str, verb: str, expected: str
) -> None:
    monkeypatch.setattr(sys, "argv", [called.format(here=here)])
    assert invocation(verb) == expected


def test_program_on_the_path_is_called_by_its_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here / ".venv/bin"))
    monkeypatch.setattr(sys, "argv", [str(here / ".venv/bin/fedlearn")])
    assert invocation("serve") == "fedlearn serve"
    monkeypatch.setattr(sys, "argv", ["server.py"])
    assert invocation("serve") == "python server.py"


def test_program_elsewhere_is_called_by_its_path(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("a b")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "argv", [str(here / "server.py")])
    assert invocation("serve") == f"{here}/.venv/bin/python {here}/server.py"
    monkeypatch.setattr(sys, "executable", str(elsewhere.parent / "c d" / "python"))
    assert invocation("serve").startswith(f"'{elsewhere.parent}/c d/python' ")

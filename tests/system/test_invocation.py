import sys
from pathlib import Path

import pytest

from fedlearn.system.invocation import invocation


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment in it, of which nothing is on the path."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python3.11", "fedlearn"):
        (programs / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python3.11"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: {"scripts": str(programs)}[name])
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


@pytest.mark.parametrize("called", ["server.py", "/usr/bin/pytest", ".venv/bin/fedlearn"])
@pytest.mark.parametrize("verb", ["serve", "join", "runs"])
def test_all_verbs_are_spelled_alike_however_this_process_was_called(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: str, called: str
) -> None:
    assert here == Path.cwd()
    monkeypatch.setattr(sys, "argv", [called])
    assert invocation(verb) == f".venv/bin/fedlearn {verb}"


def test_program_on_the_path_is_called_by_its_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here / ".venv/bin"))
    assert invocation("serve") == "fedlearn serve"


def test_another_program_of_that_name_on_the_path_is_not_called(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("bin")
    (other / "fedlearn").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other))
    assert here == Path.cwd()
    assert invocation("serve") == ".venv/bin/fedlearn serve"


def test_without_a_program_it_is_a_module_of_this_python(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / ".venv/bin/fedlearn").unlink()
    assert invocation("serve") == ".venv/bin/python3.11 -m fedlearn serve"
    monkeypatch.setenv("PATH", str(here / ".venv/bin"))
    assert invocation("serve") == "python3.11 -m fedlearn serve"


def test_program_elsewhere_is_called_by_its_path(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("a b")
    monkeypatch.chdir(elsewhere)
    assert invocation("serve") == f"{here}/.venv/bin/fedlearn serve"
    (here / ".venv/bin/fedlearn").unlink()
    monkeypatch.setattr(sys, "executable", str(elsewhere.parent / "c d" / "python"))
    assert invocation("serve").startswith(f"'{elsewhere.parent}/c d/python' ")


def test_of_another_machine_no_folders_are_known(here: Path) -> None:
    assert here == Path.cwd()
    assert invocation("join", is_elsewhere=True) == "fedlearn join"

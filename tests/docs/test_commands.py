"""Every command that a page shows: it exists, it takes those flags, and what is quick to run does run."""

import shutil
from pathlib import Path

import pytest

from fedlearn.commands.command_line import _parser, main
from fedlearn.config import Schema, flag_of
from fedlearn.tasks.registry import find_kind, kind_names
from tests.docs.pages import REPOSITORY, Command, commands
from tests.end_to_end.processes import ended_at_exit, output_of, start
from tests.patience import LIMIT_S
from tests.run_folders import write_text

ALL = sorted(set(commands()))
OWN = [command for command in ALL if command.own_arguments is not None]
OTHERS = [command for command in ALL if command.own_arguments is None]
PROGRAMS = {"chmod", "cp", "curl", "docker", "echo", "loginctl", "mkdir", "openssl", "pip", "systemctl"}
"""Of others, which the reader's machine has or has not."""

QUICK = {"check", "eval", "identity", "replay", "rollback", "runs", "sample"}
"""Verbs that look at a run and end."""

STEPS = 101
TINY = ["--hidden-size", "4", "--population-limit", "16", "--group-size", "8", "--sigma", "0.02"]
TINY += ["--learning-rate", "0.01", "--time-per-step", "5", "--audit", "0", "--sample-time", "0", "--threads", "1"]
"""What the run of these tests is like: nothing is measured first, and a step takes milliseconds."""


def name_of(command: Command) -> str:
    return f"{command.page}: {' '.join(command.words)}"


@pytest.mark.parametrize("command", OWN, ids=name_of)
def test_command_of_ours_takes_these_flags(command: Command) -> None:
    arguments = command.own_arguments
    assert arguments is not None
    _, unknown = _parser("fedlearn").parse_known_args(arguments)
    assert unknown == []


@pytest.mark.parametrize("command", OTHERS, ids=name_of)
def test_other_program_is_a_usual_one_or_a_script_of_ours_with_these_flags(command: Command) -> None:
    words = command.words
    if command.program in PROGRAMS or command.program in ("pytest", "mkdocs", "ruff", "mypy"):
        return
    assert command.program in ("python", "python3", "torchrun"), command.text
    if command.program == "torchrun":  # whose own flags come first
        words = words[[word.endswith(".py") for word in words].index(True) - 1 :]
    if words[1] == "-m" and words[2] in ("venv", "pytest"):
        return
    if words[1] == "-m":
        script, *words = REPOSITORY.joinpath(*words[2].split(".")).with_suffix(".py"), *words[2:]
    else:
        script = REPOSITORY / words[1]
    assert script.is_file()
    # A script shares flags with its neighbours, and learning.py takes every key of a run.
    sources = "".join(path.read_text(encoding="utf-8") for path in script.parent.glob("*.py"))
    flags = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
    keys = {flag_of(key) for name in kind_names() for key in Schema(find_kind(name).options).fields}
    assert {flag for flag in flags - keys if f'"{flag}"' not in sources} == set()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of `STEPS` steps, and the files that pages name."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("tinyshakespeare.txt", "other.txt"):
        write_text(folder / name, 8000)
    flags = ("--data", "other.txt", "--steps", str(STEPS), "--sample-every", "1", "--port", "0", *TINY)
    server = start("server.py", *flags, folder=folder, limit_s=LIMIT_S)
    with ended_at_exit(server):
        shown = output_of(server).read()
        assert server.wait(LIMIT_S) == 0, shown
    return folder


@pytest.mark.parametrize(
    "command", [command for command in OWN if (command.own_arguments or [""])[0] in QUICK], ids=name_of
)
def test_command_that_looks_at_a_run_does_what_the_page_says(
    command: Command, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reader"  # a copy, since some change the run
    shutil.copytree(place, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = command.own_arguments
    assert arguments is not None
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr()
    assert ended.value.code == 0, shown.err
    assert shown.out


def test_pages_show_the_verbs_that_people_need() -> None:
    shown = {arguments[0] for command in OWN if (arguments := command.own_arguments)}
    assert shown >= QUICK | {"serve", "join", "relay"}

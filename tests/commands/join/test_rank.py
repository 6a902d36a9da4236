"""`fedlearn rank`: which verb a rank becomes."""

from contextlib import suppress
from pathlib import Path

import pytest

from fedlearn.commands import command_line
from fedlearn.commands.command_line import main

RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


def called(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *arguments: str) -> list[str]:
    """The arguments of the verb that a rank would become."""
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    given: list[list[str]] = []
    with monkeypatch.context() as replaced, suppress(SystemExit):
        replaced.setattr(command_line, "main", given.append)
        main(["rank", *arguments])
    (found,) = given
    return found


def test_rank_0_serves_with_the_flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = called(monkeypatch, RANK, "a.py:t", "--steps", "9", "--port", "77")
    assert arguments[:3] == ["serve", "--task", "a.py:t"]
    assert arguments[-4:] == ["--steps", "9", "--port", "77"]
    assert "--resume" not in arguments


def test_rank_0_goes_on_with_the_run_in_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    again = RANK | {"TORCHELASTIC_RESTART_COUNT": "1"}
    monkeypatch.setenv("FEDLEARN_RUNS", str(tmp_path / "runs"))
    assert "--resume" not in called(monkeypatch, again, "a.py:t")
    (tmp_path / "runs/1").mkdir(parents=True)
    (tmp_path / "runs/1/config.json").write_text("{}")
    assert "--resume" in called(monkeypatch, again, "a.py:t")
    assert "--resume" not in called(monkeypatch, again, "a.py:t", "--runs", str(tmp_path / "other"))


def test_other_ranks_join_at_the_port_of_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = called(monkeypatch, RANK | {"RANK": "1"}, "a.py:t", "--port", "77", "--threads", "3")
    assert arguments[:3] == ["join", "--server", "127.0.0.1:77"]
    assert arguments[arguments.index("--threads") + 1] == "3"
    usual = called(monkeypatch, RANK | {"RANK": "1"}, "a.py:t")
    assert usual[2] == "127.0.0.1:55551"


def test_flag_that_the_server_does_not_have_ends_every_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in (RANK | {"RANK": "1"}).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(SystemExit) as ended:
        main(["rank", "a.py:t", "--stebs", "9"])
    assert ended.value.code == 2
    assert "fedlearn rank TASK: unrecognized arguments: --stebs" in capsys.readouterr().err

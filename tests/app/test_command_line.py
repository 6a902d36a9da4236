import io
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlearn.app import run as runs
from fedlearn.app.command_line import main
from fedlearn.config import RunConfig


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SERVER", "NAME", "THREADS", "RUNS"):
        monkeypatch.delenv(f"FEDLEARN_{name}", raising=False)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str]:
    """Exit code, and all that was printed."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr()
    return ended.value.code, shown.out + shown.err


def test_taken_port_is_told_once_and_leaves_no_run(
    config: RunConfig, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = outcome(capsys, "serve", "--port", str(taken_port), "--data", config.data)
    assert code == 1
    message = f"port: {taken_port} is taken by another program; stop that one, or choose another with --port"
    assert shown == f"fedlearn: {message}\n"
    assert not Path("trainingRuns").exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_address_of_another_machine_is_told_once_and_leaves_no_run(
    config: RunConfig, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    code, shown = outcome(capsys, "serve", "--host", host, "--port", "0", "--data", config.data)
    assert code == 1
    assert re.fullmatch(rf"fedlearn: host: expected an address of this machine, got '{host}'.*--host\n", shown)
    assert not Path("trainingRuns").exists()


@pytest.mark.parametrize("root", ["/proc/x", "file"])
def test_root_that_can_be_no_folder_is_named(
    config: RunConfig, capsys: pytest.CaptureFixture[str], tmp_path: Path, root: str
) -> None:
    (tmp_path / "file").touch()
    code, shown = outcome(capsys, "serve", "--runs", root, "--port", "0", "--data", config.data)
    assert (code, shown.count("\n")) == (1, 1)
    assert f"runs: expected a folder for run folders, got '{root}'" in shown


def test_file_that_the_system_refuses_is_named(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    lock = runs.create(config).folder.path / "lock"
    lock.mkdir()
    code, shown = outcome(capsys, "serve", "--resume", "1", "--runs", config.runs, "--port", "0")
    assert code == 1
    assert re.fullmatch(f"fedlearn: .*{lock}.*\n", shown)


def test_client_that_is_to_come_once_fails_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_port = listener.getsockname()[1]
    code, shown = outcome(capsys, "join", "--once", "--server", f"127.0.0.1:{free_port}", "--threads", "1")
    assert code == 1
    assert "no server answers" in shown


def test_output_that_the_encoding_cannot_hold_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit):
        main(["runs", "--runs", "Läufe"])
    assert b"no runs in L?ufe" in written.getvalue()


def test_process_may_have_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        main(["runs"])
    assert ended.value.code == 0

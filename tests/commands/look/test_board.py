import builtins
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlearn.commands.command_line import _parser
from fedlearn.commands.look.board import board_command
from tests.patience import LIMIT_S


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def called(*arguments: str) -> int:
    return board_command(_parser("fedlearn").parse_args(["board", *arguments]))


def test_port_in_use_is_told(tmp_path: Path, taken_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--runs", str(tmp_path), "--port", str(taken_port)]
    with pytest.raises(ValueError, match=f"expected a free port, but {taken_port} is in use"):
        called(*flags)
    assert called(*flags, "--companion") == 0
    assert f"port {taken_port} is in use" in capsys.readouterr().out
    assert not (tmp_path / "board-token").exists()


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--runs: expected an existing folder of runs"):
        called("--runs", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--public-host", "http://board.example.org/", "expected a name without a port"),
        ("--trust-proxy", "proxy.example.org", "expected an address or a network"),
        ("--trust-proxy", "10.0.0.1/8", "expected an address or a network"),
    ],
)
def test_name_or_proxy_that_can_not_be_is_told(tmp_path: Path, flag: str, value: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"{flag}: {expected}"):
        called("--runs", str(tmp_path), flag, value)


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:  # noqa: ANN401 (those of __import__)
        if name == "fedlearn.board.serving":
            raise ModuleNotFoundError(name="uvicorn")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"uvicorn is missing; install them: pip install 'fedlearn\[board\]'"):
        called("--runs", str(tmp_path))


def test_companion_serves_until_whoever_started_it_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedlearn", "board", "--runs", str(tmp_path), "--port", "0", "--companion"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        token = tmp_path / "board-token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        address = rf"http://127\.0\.0\.1:\d+/#token={re.escape(token.read_text())}"
        assert re.fullmatch(f"see, pause and stop runs in a browser: {address}\n", line)
        assert len(token.read_text()) >= 32
        process.stdin.close()
        assert process.wait(timeout=LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

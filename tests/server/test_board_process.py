import asyncio
import sys
from pathlib import Path

import pytest

from fedlearn.server import board_process as module
from fedlearn.server.board_process import show_board
from fedlearn.system.invocation import invocation


def test_server_without_the_packages_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "uvicorn" else object())
    asyncio.run(show_board(tmp_path, 0, said.append))
    assert said == ["to see the run in a browser: pip install 'fedlearn[board]'"]


def test_what_the_board_says_is_said_and_that_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    asyncio.run(show_board(tmp_path / "nowhere", 0, said.append))
    assert "--runs: expected an existing folder of runs" in said[0]
    again = f"start it again with: {invocation('board')}"
    assert said[1:] == [f"the board ended with exit code 1; training goes on; {again}"]


def test_board_ends_with_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $$\nexec {sys.executable} -c 'import sys; sys.stdin.read()'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    async def main() -> int:
        pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        board = asyncio.create_task(show_board(tmp_path, 0, lambda line: pid.set_result(int(line))))
        found = await pid
        assert Path(f"/proc/{found}").exists()
        board.cancel()
        await asyncio.gather(board, return_exceptions=True)
        return found

    assert not Path(f"/proc/{asyncio.run(main())}").exists()

"""The board that a server starts: a process of its own, which ends with the server."""

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedlearn.system.invocation import invocation
from fedlearn.system.processes import program

PACKAGES = ("starlette", "uvicorn")


async def show_board(root: Path, port: int, say: Callable[[str], None]) -> None:
    """Runs the board of these runs until it ends or this task is cancelled; calls `say` with each line that it
    prints."""
    if any(find_spec(package) is None for package in PACKAGES):
        say("to see the run in a browser: pip install 'fedlearn[board]'")
        return
    process = await asyncio.create_subprocess_exec(
        *program(["board", "--runs", str(root), "--port", str(port), "--companion"]),
        stdin=PIPE,  # the board ends with it, also where this process is killed
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,  # Ctrl-C is for the server
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            say(line.decode(errors="replace").rstrip())
        if code := await process.wait():
            say(f"the board ended with exit code {code}; training goes on; start it again with: {invocation('board')}")
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()

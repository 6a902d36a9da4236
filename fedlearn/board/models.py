"""The board's connection to its process of models: requests wait in turn, for a limited time."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import final

import msgspec

from fedlearn.board.generation import Request, TextDelta
from fedlearn.system.processes import program

MAX_WAITING = 8
"""Requests beside the one that is answered."""

LINE_S = 20.0
"""Seconds for the next line of an answer: a large model must be loaded first."""

ANSWER_S = 60.0
"""Seconds for a whole answer."""

MAX_LINE_BYTES = 2**20


class BusyError(Exception):
    """Raised where too many requests wait already."""


@final
class Models:
    """Sends requests to the process, which is started when it is first needed and again when it died."""

    def __init__(self, command: Sequence[str] = tuple(program([], module="fedlearn.board.inference"))) -> None:
        self._command = command
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, request: Request) -> AsyncGenerator[TextDelta, None]:
        """The answer, line by line; the last one is `done`.

        Raises:
            BusyError: too many wait; raised before the first line.
        """
        if self._waiting > MAX_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._turn:
                is_done = False
                try:
                    async with asyncio.timeout(ANSWER_S):
                        async for answer in self._exchange(request):
                            is_done = answer.done
                            yield answer
                except (TimeoutError, EOFError, OSError, ValueError):
                    yield TextDelta(error="it took too long, or the model failed; try something shorter", done=True)
                finally:
                    if not is_done:  # what it goes on to write would answer the next request
                        await self.close()
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Ends the process; several tasks may ask for that at once, and none goes on before it has ended."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if self._process is process:
                self._process = None

    async def _exchange(self, request: Request) -> AsyncIterator[TextDelta]:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        await process.stdin.drain()
        while True:
            async with asyncio.timeout(LINE_S):
                line = await process.stdout.readline()
            if not line:
                raise EOFError
            answer = msgspec.json.decode(line, type=TextDelta)
            yield answer
            if answer.done:
                return

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, limit=MAX_LINE_BYTES
            )
        return self._process

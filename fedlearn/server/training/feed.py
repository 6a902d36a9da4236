"""Data that come from outside of a run, step by step, on another thread than the server's."""

import asyncio
from collections.abc import Callable
from typing import final

from fedlearn.tasks.blocks import MAX_BLOCK_BYTES, Columns

Take = Callable[[Columns, int], None]


@final
class Feed:
    """Hands blocks of data to a server, each of which lets it open one step."""

    def __init__(self) -> None:
        self._server: tuple[asyncio.AbstractEventLoop, Take] | None = None

    def open(self, take: Take) -> None:
        """Begins to hand blocks to `take`, on the event loop that runs now."""
        self._server = asyncio.get_running_loop(), take

    def give(self, columns: Columns, *, n_members: int = 0) -> None:
        """Gives the next step its block and the number of its members; 0: as many as the settings say.

        Raises:
            ValueError: the block is too large.
            RuntimeError: no server is there, or it has ended.
        """
        if (n_bytes := sum(column.nbytes for column in columns.values())) > MAX_BLOCK_BYTES:
            raise ValueError(
                f"data: expected at most {MAX_BLOCK_BYTES} bytes for a step, got {n_bytes}; take fewer rows at a time"
            )
        if self._server is None:
            raise RuntimeError("data: expected a server that waits for them, got none; start it first")
        loop, take = self._server
        loop.call_soon_threadsafe(take, columns, n_members)

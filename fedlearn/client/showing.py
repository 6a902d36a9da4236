"""Shows a conversation on the volunteer's terminal while it goes on."""

import asyncio
from collections.abc import Callable
from typing import final

from fedlearn.client.line import ServerLine
from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import LINE_INTERVAL_S, Bar
from fedlearn.terminal.drawing import LiveBlock, show_block

INTERVAL_S = 0.4


@final
class Showing:
    """Shows a bar while a large message arrives, and otherwise the state of the work."""

    def __init__(self, terminal: Terminal, block: Callable[[], LiveBlock | None]) -> None:
        self._terminal, self._block = terminal, block
        self._bar: Bar | None = None
        self._line_due = 0.0

    async def show(self, line: ServerLine) -> None:
        """Renews what is shown until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                self._renew(line.arriving)
        finally:
            self._terminal.screen.clear()

    def _renew(self, arriving: tuple[int, int] | None) -> None:
        screen, now = self._terminal.screen, asyncio.get_running_loop().time()
        if arriving is None:
            self._bar = None
            if screen.mode == "live" and (block := self._block()) is not None:
                show_block(screen, block)
            return
        if self._bar is None:
            self._bar, self._line_due = Bar("receiving the run", "bytes"), now + LINE_INTERVAL_S
        self._bar.reach(*arriving)
        if screen.mode == "live":
            self._bar.show_on(screen)
        elif now >= self._line_due:
            self._line_due = now + LINE_INTERVAL_S
            self._terminal.say(self._bar.said())

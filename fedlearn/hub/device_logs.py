"""What devices say that share their logs, kept in memory, the last lines of each."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import final

MAX_LINES = 1000
"""The number of last lines of a device that are kept."""

INTERVAL_S = 0.3


@final
class DeviceLogs:
    """The lines of all devices, by the number of the device."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[str]] = {}
        self._n_said: dict[int, int] = {}

    def add(self, device: int, lines: Sequence[str]) -> None:
        """Adds lines, in which nothing but printable characters stays."""
        kept = self._lines.setdefault(device, deque(maxlen=MAX_LINES))
        kept.extend("".join(c if c.isprintable() else " " for c in line) for line in lines)
        self._n_said[device] = self._n_said.get(device, 0) + len(lines)

    def since(self, device: int, n_read: int) -> tuple[list[str], int]:
        """The lines that came after so many, as far as they are kept, and how many there were in all."""
        n_said = self._n_said.get(device, 0)
        kept = self._lines.get(device, ())
        return list(kept)[len(kept) - min(max(n_said - n_read, 0), len(kept)) :], n_said

    async def follow(self, device: int, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The lines so far, and those that come until it is over."""
        n_read = 0
        while True:
            over = is_over()  # asked first: what is said before that is read
            lines, n_read = self.since(device, n_read)
            if lines:
                yield "".join(f"{line}\n" for line in lines).encode()
            elif over:
                return
            else:
                await asyncio.sleep(INTERVAL_S)

    def forget(self, device: int) -> None:
        """Forgets the lines of a device, whose number is another's now."""
        self._lines.pop(device, None)
        self._n_said.pop(device, None)

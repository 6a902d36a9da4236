"""Limits how many may be inside at once, in all and of one address."""

from collections import Counter
from collections.abc import Callable
from typing import final

from starlette.types import ASGIApp, Receive, Scope, Send


@final
class Quota:
    """Counts slots that are taken, in all and by address."""

    def __init__(self, total: int, *, of_one: int) -> None:
        self._total = total
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @property
    def n_taken(self) -> int:
        """Number of slots that are taken, by all addresses."""
        return self._taken.total()

    def take(self, address: str) -> bool:
        """Takes a slot, to be returned by `free`, and gives whether there was one."""
        if self.n_taken >= self._total or self._taken[address] >= self._of_one:
            return False
        self._taken[address] += 1
        return True

    def free(self, address: str) -> None:
        """Returns a slot."""
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]


@final
class Leaving:
    """A response with a callback for its end, however it ends."""

    def __init__(self, response: ASGIApp, then: Callable[[], None]) -> None:
        self._response = response
        self._then = then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._then()

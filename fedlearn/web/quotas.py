"""So many at once, and fewer of one address."""

from collections import Counter
from collections.abc import Callable
from typing import final

from starlette.types import ASGIApp, Receive, Scope, Send

NOBODY = ""
"""What comes from a proxy that tells whom it carries, and is counted for those."""


@final
class Quota:
    """Who is in counts for the address that came."""

    def __init__(self, total: int, *, of_one: int) -> None:
        self._total = total
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @property
    def n_taken(self) -> int:
        """Of all."""
        return self._taken.total()

    @property
    def is_full(self) -> bool:
        """Whether all are taken."""
        return self.n_taken >= self._total

    def taken_by(self, address: str) -> int:
        """The number of places that an address has."""
        return self._taken[address]

    def take(self, address: str) -> bool:
        """Whether there was a place, which then is taken until `free`."""
        if self.is_full or (address != NOBODY and self._taken[address] >= self._of_one):
            return False
        self._taken[address] += 1
        return True

    def free(self, address: str) -> None:
        """Gives a place back."""
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]


@final
class Leaving:
    """A response, with a word when it is over, however it ends."""

    def __init__(self, response: ASGIApp, then: Callable[[], None]) -> None:
        self._response = response
        self._then = then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._then()

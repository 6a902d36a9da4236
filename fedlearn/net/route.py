"""Which of several servers is tried next: from the first on, each time that a conversation is over."""

from collections.abc import Sequence
from typing import final

from fedlearn.net.address import Address


@final
class Route:
    """Addresses in the order in which they are wanted."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """Raises ValueError where there is none."""
        if not addresses:
            raise ValueError("server: expected an address or more, got none")
        self._addresses = tuple(addresses)
        self._place = 0

    @property
    def address(self) -> Address:
        """Whom to try now."""
        return self._addresses[self._place]

    def failed(self) -> bool:
        """Nobody took us in there; whether another is left before it is time to wait."""
        self._place = (self._place + 1) % len(self._addresses)
        return self._place > 0

    def worked(self) -> None:
        """A conversation took place: the next one begins with the first again."""
        self._place = 0

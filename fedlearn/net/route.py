"""Chooses which of several servers is tried next: from the first on, after each conversation."""

from collections.abc import Sequence
from typing import final

from fedlearn.net.address import Address


@final
class Route:
    """The addresses of servers in the order in which they are preferred."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """Begins with the first address.

        Raises:
            ValueError: there is none.
        """
        if not addresses:
            raise ValueError("server: expected an address or more, got none")
        self._addresses = tuple(addresses)
        self._place = 0

    @property
    def address(self) -> Address:
        """The address to try now."""
        return self._addresses[self._place]

    def failed(self) -> bool:
        """Goes to the next address; gives whether there was one left to try before it is time to wait."""
        self._place = (self._place + 1) % len(self._addresses)
        return self._place > 0

    def worked(self) -> None:
        """Goes back to the first address, since a conversation took place."""
        self._place = 0

"""A list with a bound on its length, whose items are spread evenly over all that were added."""

from typing import Generic, TypeVar, final

ItemType = TypeVar("ItemType")


@final
class DecimatedList(Generic[ItemType]):
    """Keeps every item at first, then every second, every fourth and so on; it always keeps the newest."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._stride = 1
        self._kept: list[tuple[int, ItemType]] = []
        self._newest: tuple[int, ItemType] | None = None

    def append(self, item: ItemType) -> None:
        """Adds an item at the end."""
        number = 0 if self._newest is None else self._newest[0] + 1
        self._newest = number, item
        if number % self._stride:
            return
        self._kept.append(self._newest)
        if len(self._kept) > self._capacity:
            self._kept = self._kept[::2]
            self._stride *= 2

    @property
    def items(self) -> list[ItemType]:
        """The kept items, oldest first."""
        newest = [self._newest] if self._newest is not None and self._newest != self._kept[-1] else []
        return [item for _, item in (*self._kept, *newest)]

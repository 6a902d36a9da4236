"""What is told of work that takes long."""

from collections.abc import Callable
from typing import final


@final
class Followed:
    """Keeps each piece of work with how far it was said to be."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, list[tuple[float, float | None]]]] = []
        self.reached: Callable[[], None] = lambda: None
        """Is called each time."""

    def begin(self, what: str, unit: str = "") -> None:
        self.told.append((what, unit, []))

    def reach(self, done: float, total: float | None = None) -> None:
        self.told[-1][2].append((done, total))
        self.reached()

    @property
    def pieces(self) -> list[str]:
        """What was done, in turn."""
        return [what for what, _, _ in self.told]

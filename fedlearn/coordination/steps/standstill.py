"""Tells whether a run by gradients has learned nothing since its first steps."""

from statistics import median
from typing import final

FIRST = slice(3)
"""The steps that show with what loss a run began."""

EARLY = slice(10, 40)
"""The steps with whose losses later ones are compared; before them, a head learns how often each class is there."""

LATE = slice(70, 100)
"""The steps whose losses should be less by then."""

MOSTLY = 20
"""How many of the late losses are below those before where a model learns; by accident, half are."""

LEARNED = 0.5
"""The share of the first losses below which a model has learned something, whether or not it goes on."""

LOWER = 3.0
"""The factor by which a lower rate is lower."""


@final
class StandstillWatch:
    """Watches the losses of the first steps of a run, as one process sees all of them."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def took(self, step: int, loss: float | None, learning_rate: float) -> str:
        """Takes the loss of a step; gives news of a standstill in one of them, which is otherwise empty."""
        if step >= LATE.stop or loss is None:
            return ""
        self._losses.append(loss)
        if len(self._losses) < LATE.stop:
            return ""
        first, early, late = (self._losses[steps] for steps in (FIRST, EARLY, LATE))
        before = min(median(first), median(early))
        if sum(loss < before for loss in late) >= MOSTLY or median(late) < LEARNED * median(first):
            return ""
        return (
            f"the loss is {median(late):.4g} after {LATE.stop} steps, no lower than before; if steps are too long, "
            f"learning_rate = {learning_rate / LOWER:.2g} in place of {learning_rate:.2g} helps"
        )

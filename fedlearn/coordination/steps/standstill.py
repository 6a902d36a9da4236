"""Tells whether a run by gradients has learned nothing since its first steps, and tries a lower learning rate then."""

from statistics import median
from typing import final

from msgspec.structs import replace

from fedlearn.es.attempts import LOWER, Attempt

FIRST = slice(3)
"""The steps that show with what loss an attempt began."""

EARLY = slice(10, 40)
"""The steps with whose losses later ones are compared; before them, a head learns how often each class is there."""

LATE = slice(70, 100)
"""The steps whose losses should be less by then."""

MOSTLY = 20
"""How many of the late losses are below those before where a model learns; by accident, half are."""

LEARNED = 0.5
"""The share of the first losses below which a model has learned something, whether or not it goes on."""


@final
class StandstillWatch:
    """Watches the losses of the first steps of an attempt, as one process sees all of them."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def took(self, loss: float | None) -> None:
        """Takes the loss of the next step."""
        if loss is not None and len(self._losses) < LATE.stop:
            self._losses.append(loss)

    @property
    def loss(self) -> float:
        """The loss of the last steps."""
        return median(self._last)

    @property
    def stands(self) -> bool:
        """Whether the loss is no lower than before; False where not all losses were seen."""
        if len(self._losses) < LATE.stop:
            return False
        first, early = median(self._losses[FIRST]), median(self._losses[EARLY])
        return not self.is_below(min(first, early)) and self.loss >= LEARNED * first

    def is_below(self, loss: float) -> bool:
        """Whether the losses of the last steps are mostly below this one."""
        return sum(each < loss for each in self._last) >= MOSTLY

    @property
    def _last(self) -> list[float]:
        return self._losses[LATE.start - LATE.stop :]


def judged(
    attempt: Attempt | None, watch: StandstillWatch, *, restarts: int, learning_rate: float
) -> tuple[Attempt | None, str]:
    """What follows the last of the first steps of an attempt, None where a run has none, and news of it.

    `learning_rate` is that of the first attempt.
    """
    number = attempt.number if attempt is not None else 1
    rate, lower = (f"learning_rate = {learning_rate / LOWER**n:.2g}" for n in (number - 1, number))
    if number == 1 and watch.stands:
        told = f"the loss is {watch.loss:.4g} after {LATE.stop} steps, no lower than before; "
        if attempt is None:
            return None, f"{told}if steps are too long, {lower} in place of {learning_rate:.2g} helps"
        kept = replace(attempt, best=watch.loss, move="keep")
        return kept, f"{told}so many are tried with {lower} in place of {learning_rate:.2g}, from the first weights"
    if attempt is None or number == 1:
        return attempt and replace(attempt, move="settle"), ""
    if watch.is_below(attempt.best):
        told = f"with {rate} the loss is {watch.loss:.4g} after {LATE.stop} steps; the run goes on so"
        return replace(attempt, move="settle"), told
    told = f"with {rate} it is no lower after {LATE.stop} steps"
    if number <= restarts:
        return replace(attempt, move="anew"), f"{told}; so many are tried with {lower}"
    return replace(attempt, move="back"), f"{told}; the run goes on where it was, with {learning_rate:.2g}"

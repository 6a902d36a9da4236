"""Tells whether a run by gradients has learned nothing since its first steps, and tries a lower learning rate then."""

from statistics import median
from typing import final

from msgspec.structs import replace

from fedlearn.es.attempts import LOWER, Attempt
from fedlearn.es.strategy import Strategy

FIRST = slice(3)
"""The steps that show with what loss an attempt began."""

EARLY = slice(10, 40)
"""The steps with whose losses later ones are compared; before them, a head learns how often each class is there."""

LATE = slice(70, 100)
"""The steps whose losses should be less by then."""

MOSTLY = 20
"""How many of the late losses are below those before where a model learns; by accident, half are."""

LITTLE = 0.01
"""The share of a loss by which it may fall where nothing is learned."""

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
        before = min(first, early)
        falls = self.is_below(before) and self.loss < before - LITTLE * abs(before)
        return not falls and self.loss >= LEARNED * first

    def is_below(self, loss: float) -> bool:
        """Whether the losses of the last steps are mostly below this one."""
        return sum(each < loss for each in self._last) >= MOSTLY

    @property
    def _last(self) -> list[float]:
        return self._losses[LATE.start - LATE.stop :]


def judged(attempt: Attempt | None, watch: StandstillWatch, strategy: Strategy) -> tuple[Attempt | None, str]:
    """What follows the last of the first steps of an attempt, None where a run has none, and news of it."""
    number, optimizer = attempt.number if attempt is not None else 1, strategy.optimizer
    first, rate, lower = (optimizer.lowered(LOWER**n).learning_rate for n in (0, number - 1, number))
    if number == 1 and watch.stands:
        told = f"the loss is {watch.loss:.4g} after {LATE.stop} steps, no lower than before; "
        if attempt is None:
            return None, f"{told}if steps are too long, learning_rate = {lower:.2g} in place of {first:.2g} helps"
        which = " for all but hidden matrices" if optimizer.by_matrix else ""
        told += f"so many are tried from the first weights with learning_rate = {lower:.2g} in place of {first:.2g}"
        return replace(attempt, best=watch.loss, move="keep"), told + which
    if attempt is None or number == 1:
        return attempt and replace(attempt, move="settle"), ""
    told = f"with learning_rate = {rate:.2g} "
    if watch.is_below(attempt.best):
        told += f"the loss is {watch.loss:.4g} after {LATE.stop} steps; the run goes on so"
        return replace(attempt, move="settle"), told
    told += f"it is no lower after {LATE.stop} steps; "
    if number <= strategy.attempts.restarts:
        return replace(attempt, move="anew"), f"{told}so many are tried with {lower:.2g}"
    return replace(attempt, move="back"), f"{told}the run goes on where it was, with {first:.2g}"

"""Attempts: a run that is far from its target, and not on its way there, begins again from its first weights.

What an optimizer finds may depend on its first steps. The weights with the lowest loss of all attempts are kept, and
the last attempt goes back to them.

A run by gradients has no target: if its loss stands still at first, it begins again with a lower rate, and goes back if
that does not help. Whoever has seen its first losses decides that (`fedlearn.coordination.steps.standstill`).

A search, whose noise learns the shape of a function's valley, is at its end where members no longer differ. It begins
again elsewhere, with more members, which see more of the function's large shape; source: Auger and Hansen, "A Restart
CMA Evolution Strategy with Increasing Population Size", 2005.
"""

import math
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

SMOOTHING = 0.9
"""The weight of earlier steps in the smoothed loss."""

BLOCK_STEPS = 25
"""Steps after which progress is judged, from the second time on."""

FAR = 1 / 3
"""The share of the way from the first loss to the target below which an attempt is far from it."""

MOST_BLOCKS = 12
"""An attempt that would need more blocks than this at the pace of the last one is not on its way to the target."""

LOWER = 3.0
"""The factor by which the learning rate of a run by gradients is lower in each further attempt."""

ALIKE_STEPS = 10
"""Steps in a row whose losses are alike at the end of a search."""

ALIKE_SHARE = 2.0**-21
"""The difference of losses that are alike, as a share of their median: four times what float32 holds."""

ALIKE_OF_FIRST, MOST_ALIKE = 1e-12, 1e-10
"""The same as a share of an attempt's first loss, and the most of that, for functions whose least loss is near zero."""

WIDER = 4
"""The factor by which a search has more members in each further attempt."""

Move = Literal["on", "keep", "anew", "back", "settle"]


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """The state of an attempt after a step."""

    number: int
    """The attempt's number, from 1 on."""
    began: int
    """Its first step."""
    first: float = 0.0
    """The loss of its first step; this and the next two are 0 where gradients are measured."""
    smoothed: float = 0.0
    """The running mean of its losses; in a search the last one."""
    mark: float = 0.0
    """The smoothed loss at the end of the block before; in a search the number of last steps whose losses are alike."""
    best: float = 0.0
    """The lowest smoothed loss of all attempts, infinite until the first block, or search, is over; where gradients are
    measured that of the first attempt, 0 before it is known."""
    move: Move = "on"
    """What follows the step: "keep" keeps the weights as the best, "anew" takes the first ones again, "back" the best
    ones, "settle" forgets both, since the run begins again no more."""

    def news(self, *, of_search: bool) -> str:
        """What an operator should know of the step."""
        if self.move == "anew" and of_search:
            return (
                f"members of attempt {self.number} no longer differ, at a loss of {self.smoothed:.4g}; attempt "
                f"{self.number + 1} begins elsewhere, with {WIDER} times the members, and the best weights are kept"
            )
        if self.move == "anew":
            return (
                f"attempt {self.number} is far from target_loss and not on its way there, so attempt {self.number + 1} "
                "begins from the first weights; the best ones are kept"
            )
        return "the run goes back to its best weights" if self.move == "back" else ""

    def is_stuck(self, target: float) -> bool:
        """Whether no attempt reached the target, and this one is far from it and not on its way there."""
        is_far = self.first - self.smoothed < FAR * (self.first - target)
        is_slow = (self.mark - self.smoothed) * MOST_BLOCKS < self.smoothed - target
        return self.best > target and is_far and is_slow


class Attempts(msgspec.Struct, frozen=True):
    """How often a run may begin again, and the loss that it wants."""

    restarts: int = 0
    target_loss: float = 0.0


def attempt_by_gradients(last: Attempt, *, step: int) -> Attempt | None:
    """The attempt of this step of a run by gradients, after that of the step before; None: the run has settled, with
    the rate that it began with."""
    match last.move:
        case "keep":
            return replace(last, move="anew")
        case "anew":
            return Attempt(last.number + 1, step, best=last.best)
        case "back":
            return Attempt(1, step, move="settle")
        case "settle":
            return replace(last, move="on") if last.number > 1 else None
        case _:
            return last


def attempt_after(last: Attempt | None, attempts: Attempts, *, step: int, loss: float, is_last: bool) -> Attempt:
    """The attempt after this step, whose members have this loss."""
    if last is None:
        return Attempt(1, step, loss, loss, loss, math.inf)
    if last.move == "anew":
        now = Attempt(last.number + 1, step, loss, loss, loss, last.best)
    else:
        now = _gone_on(last, attempts, n_steps=step - last.began + 1, loss=loss)
    return _back(now) if is_last and now.smoothed > now.best else now


def attempt_of_search(
    last: Attempt | None, attempts: Attempts, *, step: int, losses: NDArray[np.float32], is_last: bool
) -> Attempt:
    """The attempt of a search after this step, whose members have these losses, all finite."""
    loss, restarts = float(np.median(losses)), attempts.restarts
    if last is None:
        now = Attempt(1, step, loss, loss, best=math.inf)
    elif last.move == "anew":
        now = Attempt(last.number + 1, step, loss, loss, best=last.best)
    else:
        now = replace(last, smoothed=loss, move="on")
    least = min(ALIKE_OF_FIRST * abs(now.first), MOST_ALIKE)
    is_alike = np.ptp(losses) <= max(ALIKE_SHARE * abs(loss), least)
    now = replace(now, mark=now.mark + 1 if is_alike else 0.0)
    is_at_end = now.mark >= ALIKE_STEPS
    if is_at_end and now.number <= restarts and not is_last:
        is_kept = last is not None and last.move == "keep"
        return replace(now, move="anew") if is_kept or loss >= now.best else replace(now, best=loss, move="keep")
    if is_at_end and now.number == restarts + 1:
        now, is_last = replace(now, number=now.number + 1), True
    return _back(now) if is_last and loss > now.best else now


def _back(attempt: Attempt) -> Attempt:
    """The attempt where it has the best weights again, whose loss is known."""
    return replace(attempt, smoothed=attempt.best, mark=attempt.best, move="back")


def _gone_on(last: Attempt, attempts: Attempts, *, n_steps: int, loss: float) -> Attempt:
    """The same attempt after so many steps, or its end."""
    smoothed = SMOOTHING * last.smoothed + (1.0 - SMOOTHING) * loss
    now = replace(last, smoothed=smoothed, move="on")
    if n_steps >= BLOCK_STEPS and smoothed < last.best:
        now = replace(now, best=smoothed, move="keep")
    if n_steps % BLOCK_STEPS != 0:
        return now
    if n_steps > BLOCK_STEPS and now.is_stuck(attempts.target_loss):
        if now.number <= attempts.restarts:
            return replace(now, move="anew")
        if now.number == attempts.restarts + 1 and smoothed > now.best:
            # Further numbers are never judged: whoever is stuck now stays with the best weights.
            return _back(replace(now, number=now.number + 1))
    return replace(now, mark=smoothed)

"""What a run of the learning benchmark may spend: trial-tokens or seconds."""

from typing import Literal

import msgspec


class Budget(msgspec.Struct, frozen=True, order=True):
    """An amount of one resource. A budget of tokens counts scored tokens times members, without context."""

    unit: Literal["trial-tokens", "seconds"]
    amount: float

    def progress(self, *, seconds: float, trial_tokens: int) -> float:
        """The share that is spent, 1 or more at the end."""
        return (seconds if self.unit == "seconds" else trial_tokens) / self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} {'s' if self.unit == 'seconds' else self.unit}"

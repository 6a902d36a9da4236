"""Examinations of a run's model: one JSON object each, on a line of `samples.jsonl`."""

import msgspec


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One examination of the unperturbed weights."""

    step: int
    """Steps that the run had taken."""
    time: float
    """Seconds since 1970."""
    figures: dict[str, float | None]
    """Figures on held-out data; None (or NaN, which JSON cannot hold) where a figure is not a number."""
    text: str
    """Text that the model wrote, with its line breaks; empty for a model that does not write."""

"""What a model could do whenever it was looked at: one JSON object a look, one look a line, in `samples.jsonl`."""

import msgspec


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the unperturbed weights."""

    step: int
    """Steps that were taken by then."""
    time: float
    """Seconds since 1970."""
    figures: dict[str, float | None]
    """On held-out data; None (or NaN, which JSON cannot say) for one that is no number."""
    text: str
    """What the model wrote, with its line breaks; empty for models that don't write."""

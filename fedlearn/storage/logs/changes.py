"""Settings that an operator changed while a run went on: a JSON object each, one a line, in `changes.jsonl`."""

from typing import Any

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Another value of one setting."""

    step: int
    """The step that was open; later ones have the new value."""
    time: float
    """Seconds since 1970."""
    key: str
    value: Any
    before: Any
    along_with: str = ""
    """The setting that the operator named, where this one had to follow it; empty where they are the same."""


def as_written(value: object) -> object:
    """A setting's value in JSON's types, which have no tuples."""
    return msgspec.to_builtins(list(value) if isinstance(value, tuple) else value)

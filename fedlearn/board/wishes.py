"""What viewers may ask a model for."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_PROMPT = 2000
MAX_LENGTH = 500
MAX_BEAMS = 16


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text to be written."""

    prompt: Annotated[str, Meta(max_length=MAX_PROMPT)] = ""
    length: Annotated[int, Meta(ge=1, le=MAX_LENGTH)] = 200
    """Tokens."""
    temperature: Annotated[float, Meta(ge=0, le=5)] = 0.6
    beams: Annotated[int, Meta(ge=0, le=MAX_BEAMS)] = 0
    """0: sampling, at the temperature."""


class Request(msgspec.Struct, frozen=True):
    """From the board to its process of models."""

    what: Literal["write", "abilities"]
    folder: str
    """Of the run."""
    wish: Wish = Wish()


class Abilities(msgspec.Struct, frozen=True):
    """What can be had of a run's model."""

    writes: bool
    baselines: dict[str, float]
    """What n-gram models reach on its text, by their names."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of what comes back. The text so far is its first `keep` characters with `add` behind them."""

    keep: int = 0
    add: str = ""
    step: int = -1
    """Of the weights."""
    note: str = ""
    """What a reader should know."""
    abilities: Abilities | None = None
    error: str = ""
    done: bool = False
    """Whether it is the last line."""

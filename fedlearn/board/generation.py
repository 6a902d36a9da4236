"""Requests that viewers may make of a model."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_PROMPT = 2000
MAX_LENGTH = 500
MAX_BEAMS = 16


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text to be written."""

    prompt: Annotated[str, Meta(max_length=MAX_PROMPT)] = ""
    length: Annotated[int, Meta(ge=1, le=MAX_LENGTH)] = 200
    """Number of tokens to write."""
    temperature: Annotated[float, Meta(ge=0, le=5)] = 0.6
    beams: Annotated[int, Meta(ge=0, le=MAX_BEAMS)] = 0
    """Number of beams; 0: sampling at the temperature."""


class Request(msgspec.Struct, frozen=True):
    """A request of the board to its process for models."""

    what: Literal["write", "abilities"]
    folder: str
    """The folder of the run."""
    generation: GenerationRequest = GenerationRequest()


class Abilities(msgspec.Struct, frozen=True):
    """The abilities of a run's model."""

    writes: bool
    baselines: dict[str, float]
    """Losses of n-gram models on its text, by their names."""


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an answer. The text so far is its first `keep` characters, followed by `add`."""

    keep: int = 0
    add: str = ""
    step: int = -1
    """The step before which the weights stand."""
    note: str = ""
    """A note for the reader."""
    abilities: Abilities | None = None
    error: str = ""
    done: bool = False
    """Whether it is the last line."""

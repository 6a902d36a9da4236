"""The one way in which a model writes, by sampling or by beam search, for the terminal and the board alike."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from fedlearn.text.beam_search import Search, searched
from fedlearn.text.language_model import Continuation, LanguageModel
from fedlearn.text.sampling import Manner, sampled
from fedlearn.text.tokens import TokenArray

CIRCLE_CHARACTERS = 6
"""Length of what small models repeat in their likeliest texts: "the the the"."""

_UNFINISHED = re.compile(r"(?<=\S)\s+\S*\w\Z")


def up_to_a_word(text: str) -> str:
    """The text without its last word, where there is another and no mark closes it: it may not be at its end."""
    return _UNFINISHED.sub("", text)


def written(
    model: LanguageModel,
    prompt: TokenArray,
    *,
    length: int,
    n_beams: int | None,
    given: Mapping[str, Any],
    characters_per_token: float,
    generator: np.random.Generator,
) -> Iterator[Continuation]:
    """The text as it grows, the last one whole: by beam search where `n_beams` is given, otherwise by sampling.

    `given` holds fields of Search or of Manner, where None stands for the default. Beam search by default repeats no
    sequence of about CIRCLE_CHARACTERS characters.

    Raises:
        ValueError: a value is out of its range.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if n_beams is None:
        manner = msgspec.convert(chosen, Manner)
        return sampled(model, prompt, length=length, generator=generator, manner=manner)
    chosen.setdefault("no_repeat_ngram", max(round(CIRCLE_CHARACTERS / characters_per_token), 2))
    return searched(model, prompt, n_beams=n_beams, length=length, rules=msgspec.convert(chosen, Search))

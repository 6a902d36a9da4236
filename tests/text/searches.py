"""Beam search to its end, as tests look at it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlearn.text.beam_search import Search, searched
from fedlearn.text.language_model import Continuation, LanguageModel, last_of


def beam_search(
    model: LanguageModel,
    prompt: Sequence[int] | NDArray[np.integer],
    *,
    n_beams: int,
    length: int,
    rules: Search | None = None,
) -> Continuation:
    """The best hypothesis that the search finds."""
    return last_of(searched(model, prompt, n_beams=n_beams, length=length, rules=rules))

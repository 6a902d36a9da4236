"""What a token is: an unsigned 16-bit number below the vocabulary size of its tokenizer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TokenArray = NDArray[np.uint16]
"""[n] tokens."""

MAX_VOCAB_SIZE = 65_535


def as_tokens(tokens: Sequence[int] | NDArray[np.integer], *, vocab_size: int) -> TokenArray:
    """The same tokens as a uint16 array [n].

    Raises:
        ValueError: a token lies outside 0..vocab_size-1.
    """
    numbers = np.asarray(tokens)
    outside = numbers[(numbers < 0) | (numbers >= vocab_size)]
    if outside.size:
        raise ValueError(f"token: expected 0 to {vocab_size - 1}, got {outside[0]}; use the tokenizer of the text")
    return numbers.astype(np.uint16)

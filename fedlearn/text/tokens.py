"""What a token is: an unsigned 16-bit number below the vocabulary size of its tokenizer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TokenArray = NDArray[np.uint16]
"""[n] tokens."""

StoredTokens = NDArray[np.unsignedinteger[Any]]
"""[n] tokens as files and blocks hold them: in one byte each where the vocabulary allows it."""

MAX_VOCAB_SIZE = 65_535

DOCUMENT_END = "\udfff"
"""Stands for `<stop>` in a text: half a surrogate pair, which no decoded text contains."""


def stored_type(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The dtype that tokens are stored in: one byte, or two in little-endian order."""
    return np.dtype(np.uint8) if vocab_size <= 256 else np.dtype("<u2")


def code_points(text: str) -> NDArray[np.uint32]:
    """The characters [n] of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")


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

"""Tokens, which are unsigned 16-bit numbers below the vocabulary size of their tokenizer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TokenArray = NDArray[np.uint16]
"""An array of tokens, [n]."""

StoredTokens = NDArray[np.unsignedinteger[Any]]
"""An array of tokens, [n], as files and blocks hold them: one byte each if the vocabulary allows it."""

MAX_VOCAB_SIZE = 65_535

DOCUMENT_END = "\udfff"
"""The character that stands for `<stop>` in a text: half a surrogate pair, which no decoded text contains."""


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

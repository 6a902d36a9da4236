"""A text as one stream or as documents between blank lines: split for validation, then encoded."""

import math
import re
from itertools import groupby
from typing import Literal

import msgspec
import numpy as np

from fedlearn.text.tokenizer import Tokenizer
from fedlearn.text.tokens import TokenArray

DocumentMode = Literal["stream", "blank-lines"]

_BLANK_LINES = re.compile(r"\n\s*\n")


class EncodedText(msgspec.Struct, frozen=True, eq=False):
    """Tokens [n], and how many characters they stand for."""

    tokens: TokenArray
    n_characters: int
    """The characters of the documents; a document's `<stop>` counts as one more."""

    def bits_per_character(self, loss: float) -> float:
        """The mean `loss` over these tokens (nats per token) in bits per character."""
        return loss / math.log(2) * len(self.tokens) / self.n_characters


def split_documents(text: str, mode: DocumentMode) -> list[str]:
    """The documents of `text`: all of it, or what stands between lines of nothing but white space."""
    if mode == "stream":
        return [text]
    lines = groupby(text.split("\n"), key=lambda line: line.strip() != "")
    return ["\n".join(document) for has_text, document in lines if has_text]


def encode_documents(text: str, tokenizer: Tokenizer, mode: DocumentMode) -> EncodedText:
    """All documents of `text` in one array, `<stop>` after each; a stream has no `<stop>`."""
    documents = split_documents(text, mode)
    if mode == "stream":
        return EncodedText(tokenizer.encode(text), len(text))
    stop = np.array([tokenizer.stop_token], dtype=np.uint16)
    parts = [part for document in documents for part in (tokenizer.encode(document), stop)]
    tokens = np.concatenate([np.empty(0, dtype=np.uint16), *parts])
    return EncodedText(tokens, sum(map(len, documents)) + len(documents))


def split_train_validation(text: str, mode: DocumentMode, validation_fraction: float = 0.1) -> tuple[str, str]:
    """The beginning of `text` and its last `validation_fraction`; documents are kept whole.

    Joined they are `text` again.

    Raises:
        ValueError: the fraction is not between 0 and 1, or a part would be empty.
    """
    if not 0 < validation_fraction < 1:
        raise ValueError(f"validation_fraction: expected between 0 and 1, got {validation_fraction}")
    cut = round(len(text) * (1 - validation_fraction))
    if mode == "blank-lines":
        first, last = len(text) - len(text.lstrip()), len(text.rstrip())
        starts = [gap.end() for gap in _BLANK_LINES.finditer(text, first, last)]
        cut = min(starts, key=lambda start: abs(start - cut), default=0)
    if not 0 < cut < len(text):
        raise ValueError(
            "text: expected enough to split into training and validation, "
            f"got {len(split_documents(text, mode))} document(s), {len(text)} characters; give a longer text"
        )
    return text[:cut], text[cut:]

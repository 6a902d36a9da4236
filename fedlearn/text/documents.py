"""A text as one stream or as documents between blank lines: split for validation and test, then encoded."""

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


def split_text(
    text: str, mode: DocumentMode, *, validation_fraction: float = 0.05, test_fraction: float = 0.05
) -> tuple[str, str, str]:
    """The beginning of `text` to train on, then the parts for validation and test; documents are kept whole.

    Joined they are `text` again.

    Raises:
        ValueError: a fraction is not above 0, both leave nothing to train on, or a part would be empty.
    """
    held_out = validation_fraction + test_fraction
    if not (validation_fraction > 0 and test_fraction > 0 and held_out < 1):
        raise ValueError(
            "validation_fraction, test_fraction: expected each above 0 and both together below 1, "
            f"got {validation_fraction} and {test_fraction}"
        )
    cuts = [round(len(text) * (1 - held_out)), round(len(text) * (1 - test_fraction))]
    if mode == "blank-lines":
        first, last = len(text) - len(text.lstrip()), len(text.rstrip())
        cuts = _nearest([gap.end() for gap in _BLANK_LINES.finditer(text, first, last)], cuts)
    if not 0 < cuts[0] < cuts[1] < len(text):
        raise ValueError(
            "text: expected enough to split into training, validation and test, "
            f"got {len(split_documents(text, mode))} document(s), {len(text)} characters; give a longer text"
        )
    return text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]


def _nearest(starts: list[int], cuts: list[int]) -> list[int]:
    """Two different starts, in order, near the cuts; zeros where there are not two."""
    test = min(starts[1:], key=lambda start: abs(start - cuts[1]), default=0)
    earlier = [start for start in starts if start < test]
    return [min(earlier, key=lambda start: abs(start - cuts[0]), default=0), test]

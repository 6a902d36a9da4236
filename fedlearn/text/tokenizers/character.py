"""One token per character: the most frequent ones of the training text; all others are `<unk>`."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import DOCUMENT_END, MAX_VOCAB_SIZE, TokenArray, as_tokens, code_points

_N_SPECIALS = 2
_UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"
_N_CODE_POINTS = 0x110000
_N_CHARACTERS = _N_CODE_POINTS - 0x800
"""Characters that a text can have: all code points but the halves of surrogate pairs."""


@final
class CharacterTokenizer(msgspec.Struct, frozen=True, tag="chars", tag_field="kind"):
    """Token i is `characters[i]`; the last two tokens are `<unk>`, which decodes to U+FFFD, and `<stop>`."""

    characters: str

    def __post_init__(self) -> None:
        if len(set(self.characters)) != len(self.characters):
            raise ValueError("characters: expected each character once, got a repeated one")
        if self.vocab_size > MAX_VOCAB_SIZE:
            raise ValueError(f"vocab_size: expected at most {MAX_VOCAB_SIZE}, got {self.vocab_size}")

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + _N_SPECIALS

    @property
    def unknown_token(self) -> int:
        return len(self.characters)

    @property
    def stop_token(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str) -> TokenArray:
        return _token_of_code_point(self.characters)[_code_points(text)]

    def encode_marked(self, text: str) -> TokenArray:
        return _token_of_code_point(self.characters)[code_points(text)]

    @property
    def bits_per_unknown(self) -> float:
        return math.log2(_N_CHARACTERS - len(self.characters))

    def decode(self, tokens: Sequence[int] | NDArray[np.integer]) -> str:
        text_of_token = [*self.characters, _UNKNOWN_CHARACTER, ""]
        return "".join([text_of_token[token] for token in as_tokens(tokens, vocab_size=self.vocab_size)])


def train_character_tokenizer(pieces: Iterable[str], vocab_size: int) -> CharacterTokenizer:
    """Knows the most frequent characters of a text, given in pieces; of equally frequent ones the lower code points.

    `vocab_size` includes `<unk>` and `<stop>`; 0 takes all characters that occur, as far as tokens can number them.
    """
    counts = np.zeros(_N_CODE_POINTS, dtype=np.int64)
    for piece in pieces:
        found = np.bincount(_code_points(piece))
        counts[: len(found)] += found
    by_frequency = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    kept = by_frequency[: (vocab_size or MAX_VOCAB_SIZE) - _N_SPECIALS]
    return CharacterTokenizer("".join(map(chr, kept)))


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", errors="replace"), dtype="<u4")


@lru_cache(maxsize=4)
def _token_of_code_point(characters: str) -> TokenArray:
    """[0x110000] tokens by code point: 2 MB, built once per vocabulary."""
    tokens = np.full(_N_CODE_POINTS, len(characters), dtype=np.uint16)
    tokens[_code_points(characters)] = np.arange(len(characters))
    tokens[ord(DOCUMENT_END)] = len(characters) + 1
    return tokens

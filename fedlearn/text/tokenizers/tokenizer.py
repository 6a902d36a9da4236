"""The interface of tokenizers, and functions that train one or read one from JSON."""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokenizers.bpe import BpeTokenizer, train_bpe_tokenizer
from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.tokenizers.character import CharacterTokenizer, train_character_tokenizer
from fedlearn.text.tokens import MAX_VOCAB_SIZE, TokenArray

TokenizerKind = Literal["bytes", "chars", "bpe"]

_VOCAB_SIZES: dict[str, range] = {
    "bytes": range(257, 258),  # the bytes and <stop>
    "chars": range(3, MAX_VOCAB_SIZE + 1),  # a character, <unk> and <stop>
    "bpe": range(257, MAX_VOCAB_SIZE + 1),  # the bytes and <stop>
}


class Tokenizer(Protocol):
    """A frozen value; equal tokenizers encode alike."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens, `<stop>` included."""

    @property
    def stop_token(self) -> int:
        """`<stop>` ends a document and begins generated text. No text encodes to it."""

    @property
    def unknown_token(self) -> int | None:
        """`<unk>` stands for characters without a token; None where every character has one."""

    def encode(self, text: str) -> TokenArray:
        """The tokens [n] of `text`; a lone surrogate is read as '?'."""

    def encode_marked(self, text: str) -> TokenArray:
        """The tokens [n] of `text`, with `<stop>` for each DOCUMENT_END; it must have no other surrogates."""

    @property
    def bits_per_unknown(self) -> float:
        """Bits that say which of all unknown characters an `<unk>` is; 0 where there is no `<unk>`."""

    def decode(self, tokens: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of `tokens`, with U+FFFD for what is no character and nothing for `<stop>`.

        Raises:
            ValueError: a token is outside the vocabulary.
        """


def train_tokenizer(kind: TokenizerKind, pieces: Iterable[str], vocab_size: int = 0) -> Tokenizer:
    """A tokenizer for texts like the one in `pieces`, with at most `vocab_size` tokens; 0 leaves that to the kind.

    It has fewer tokens than asked for where the text has too little to fill them.

    Raises:
        ValueError: the kind is unknown or cannot have that size.
        ImportError: the kind is `bpe`, and the `tokenizers` library is not installed.
    """
    if kind not in _VOCAB_SIZES:
        raise ValueError(f"tokenizer: expected one of {', '.join(_VOCAB_SIZES)}, got {kind!r}")
    sizes = _VOCAB_SIZES[kind]
    if vocab_size != 0 and vocab_size not in sizes:
        raise ValueError(
            f"vocab_size: expected {sizes[0]} to {sizes[-1]} for the tokenizer {kind!r}, got {vocab_size}; "
            "0 chooses a size"
        )
    match kind:
        case "bytes":
            return ByteTokenizer()
        case "chars":
            return train_character_tokenizer(pieces, vocab_size)
        case "bpe":
            return train_bpe_tokenizer(pieces, vocab_size)


def tokenizer_from_json(text: str) -> Tokenizer:
    """The tokenizer that msgspec encoded as `text`.

    Raises:
        ValueError: `text` is something else.
    """
    try:
        return msgspec.json.decode(text, type=ByteTokenizer | CharacterTokenizer | BpeTokenizer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(
            f"tokenizer: expected the JSON of a tokenizer, got {text[:40]!r} ({error}); "
            "restore the run's tokenizer.json"
        ) from error

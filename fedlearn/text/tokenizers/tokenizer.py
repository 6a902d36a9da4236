"""All tokenizers, and functions that train one or read one from JSON."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from fedlearn.text.tokenizers.bpe import BpeTokenizer, train_bpe_tokenizer
from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.tokenizers.character import CharacterTokenizer, train_character_tokenizer
from fedlearn.text.tokens import MAX_VOCAB_SIZE

TokenizerKind = Literal["bytes", "chars", "bpe"]

_VOCAB_SIZES: dict[str, range] = {
    "bytes": range(257, 258),  # the bytes and <stop>
    "chars": range(3, MAX_VOCAB_SIZE + 1),  # a character, <unk> and <stop>
    "bpe": range(257, MAX_VOCAB_SIZE + 1),  # the bytes and <stop>
}


Tokenizer = ByteTokenizer | CharacterTokenizer | BpeTokenizer
"""A frozen value; equal tokenizers encode alike. `ByteTokenizer` says what their methods do."""


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
        tokenizer: Tokenizer = msgspec.json.decode(text, type=Tokenizer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(
            f"tokenizer: expected the JSON of a tokenizer, got {text[:40]!r} ({error}); "
            "restore the run's tokenizer.json"
        ) from error
    return tokenizer

"""Byte-pair encoding by the `tokenizers` library, which belongs to an extra and is imported only when it is used.

Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, over bytes as in GPT-2.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import DOCUMENT_END, TokenArray, as_tokens

DEFAULT_VOCAB_SIZE = 1024

_SLICE = 2**17
"""The approximate number of characters encoded at once; the library takes hundreds of bytes for each."""

_PIECE = 2**12
"""The approximate number of characters of a string for the library: long strings are slow, and many are spread over the
processors."""

_CUT = re.compile(r"(?<=\S)[ \n]")
"""A place at which the library itself cuts first: a token may begin with white space, but none has it after a
letter."""


@final
class BpeTokenizer(msgspec.Struct, frozen=True, tag="bpe", tag_field="kind"):
    """The library's tokens, and `<stop>` as the last one, which the library does not know: no text encodes to it."""

    library_json: str

    @property
    def vocab_size(self) -> int:
        return self.stop_token + 1

    @property
    def stop_token(self) -> int:
        return int(_library_tokenizer(self.library_json).get_vocab_size())

    @property
    def unknown_token(self) -> None:
        return None

    def encode(self, text: str) -> TokenArray:
        return self.encode_marked(text.encode("utf-8", errors="replace").decode())

    def encode_marked(self, text: str) -> TokenArray:
        library, stop = _library_tokenizer(self.library_json), self.stop_token
        parts = [np.empty(0, dtype=np.uint16)]
        for piece in _cut(text, _SLICE):
            documents = [list(_cut(document, _PIECE)) for document in piece.split(DOCUMENT_END)]
            encodings = iter(library.encode_batch_fast([short for document in documents for short in document]))
            numbers: list[int] = []
            for number, document in enumerate(documents):
                if number > 0:
                    numbers.append(stop)
                for _ in document:
                    numbers += next(encodings).ids
            parts.append(np.array(numbers, dtype=np.uint16))
        return np.concatenate(parts)

    @property
    def bits_per_unknown(self) -> float:
        return 0.0

    def decode(self, tokens: Sequence[int] | NDArray[np.integer]) -> str:
        checked = as_tokens(tokens, vocab_size=self.vocab_size)
        return str(_library_tokenizer(self.library_json).decode(checked[checked != self.stop_token].tolist()))


def train_bpe_tokenizer(pieces: Iterable[str], vocab_size: int) -> BpeTokenizer:
    """Merges the most frequent pairs of a text in `pieces` until there are `vocab_size` tokens or no pair repeats.

    `vocab_size` includes `<stop>`; 0 stands for DEFAULT_VOCAB_SIZE.

    Raises:
        ImportError: the `tokenizers` library is not installed.
    """
    library = _import_library()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=(vocab_size or DEFAULT_VOCAB_SIZE) - 1,
        min_frequency=2,
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece.encode("utf-8", errors="replace").decode() for piece in pieces), trainer)
    return BpeTokenizer(tokenizer.to_str())


def _cut(text: str, n_characters: int) -> Iterator[str]:
    """Pieces of at least so many characters; their tokens are those of the text, wherever it is cut."""
    start = 0
    while found := _CUT.search(text, start + n_characters):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


@lru_cache(maxsize=4)
def _library_tokenizer(library_json: str) -> Any:  # noqa: ANN401 - the library's class, absent without the extra
    return _import_library().Tokenizer.from_str(library_json)


def _import_library() -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "tokenizer: 'bpe' needs the tokenizers library, which is not installed; "
            "run pip install 'fedlearn[bpe]' or choose 'chars' or 'bytes'"
        ) from error
    return tokenizers

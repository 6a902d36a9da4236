"""Byte-pair encoding by the `tokenizers` library, which belongs to an extra and is imported only when it is used.

Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, over bytes as in GPT-2.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import DOCUMENT_END, TokenArray, as_tokens

DEFAULT_VOCAB_SIZE = 1024

_SLICE = 2**17
"""Characters that are encoded at a time: the library takes hundreds of bytes for each."""


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
        valid_text = text.encode("utf-8", errors="replace").decode()
        return np.array(_library_tokenizer(self.library_json).encode(valid_text).ids, dtype=np.uint16)

    def encode_marked(self, text: str) -> TokenArray:
        library, parts = _library_tokenizer(self.library_json), [np.empty(0, dtype=np.uint16)]
        for start in range(0, len(text), _SLICE):
            first, *others = library.encode_batch(text[start : start + _SLICE].split(DOCUMENT_END))
            numbers: list[int] = first.ids
            for document in others:
                numbers += (self.stop_token, *document.ids)
            parts.append(np.array(numbers, dtype=np.uint16))
        return np.concatenate(parts)

    @property
    def bits_per_unknown(self) -> float:
        return 0.0

    def decode(self, tokens: Sequence[int] | NDArray[np.integer]) -> str:
        checked = as_tokens(tokens, vocab_size=self.vocab_size)
        return str(_library_tokenizer(self.library_json).decode(checked[checked != self.stop_token].tolist()))

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


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

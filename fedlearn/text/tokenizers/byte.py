"""One token per UTF-8 byte: there is nothing to train, and every text can be encoded."""

from collections.abc import Sequence
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import DOCUMENT_END, TokenArray, as_tokens

_END = DOCUMENT_END.encode("utf-8", errors="surrogatepass")


@final
class ByteTokenizer(msgspec.Struct, frozen=True, tag="bytes", tag_field="kind"):
    """Tokens 0..255 are UTF-8 bytes, 256 is `<stop>`."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens, `<stop>` included."""
        return 257

    @property
    def stop_token(self) -> int:
        """The token `<stop>`, which ends a document and begins generated text. No text encodes to it."""
        return 256

    @property
    def unknown_token(self) -> None:
        """The token `<unk>`, for characters without one; None where every character has one."""
        return None

    def encode(self, text: str) -> TokenArray:
        """The tokens [n] of `text`; a lone surrogate is read as '?'."""
        return np.frombuffer(text.encode("utf-8", errors="replace"), dtype=np.uint8).astype(np.uint16)

    def encode_marked(self, text: str) -> TokenArray:
        """The tokens [n] of `text`, with `<stop>` for each DOCUMENT_END; it must have no other surrogates."""
        # Neither the byte ff nor the bytes of half a surrogate pair occur in UTF-8.
        marked = text.encode("utf-8", errors="surrogatepass").replace(_END, b"\xff")
        tokens = np.frombuffer(marked, dtype=np.uint8).astype(np.uint16)
        tokens[tokens == 0xFF] = self.stop_token
        return tokens

    @property
    def bits_per_unknown(self) -> float:
        """Bits that say which of all unknown characters an `<unk>` is; 0 where there is no `<unk>`."""
        return 0.0

    def decode(self, tokens: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of `tokens`, with U+FFFD for what is no character and nothing for `<stop>`.

        Raises:
            ValueError: a token is outside the vocabulary.
        """
        checked = as_tokens(tokens, vocab_size=self.vocab_size)
        text_bytes = bytes(checked[checked != self.stop_token].astype(np.uint8))
        return text_bytes.decode("utf-8", errors="replace")

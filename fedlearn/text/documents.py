"""Texts as one stream of pieces in which the ends of documents are marked, and the tokens that come of it."""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from fedlearn.text.tokens import DOCUMENT_END, StoredTokens

DocumentMode = Literal["stream", "blank-lines", "lines", "files"]
"""The unit that counts as a document: none, the text between blank lines, a line, or a whole text."""

MAX_LINE = 2**24
"""The longest line in characters where lines matter, since a line must fit into memory."""


LEAST_PIECE = 2**16
"""The least number of characters of a piece, except the last: each piece costs some time, and rows of data sets are
short."""


class EncodedText(msgspec.Struct, frozen=True, eq=False):
    """The tokens [n] of a text, and the number of characters that they stand for."""

    tokens: StoredTokens
    n_characters: int
    """Number of characters of the documents; the `<stop>` of a document counts as one more."""
    unknown_bits: float = 0.0
    """Bits that all unknown characters cost on top of their `<unk>`, to tell which characters they were."""

    def bits_per_character(self, loss: float) -> float:
        """The mean `loss` over these tokens (nats per token) in bits per character."""
        return bits_per_character(loss, len(self.tokens), self.n_characters, self.unknown_bits)


def bits_per_character(loss: float, n_tokens: int, n_characters: int, unknown_bits: float = 0.0) -> float:
    """The mean `loss` (nats per token) in bits per character, with what unknown characters cost on top."""
    return (loss / math.log(2) * n_tokens + unknown_bits) / n_characters


def mark_documents(texts: Iterable[Iterable[str]], mode: DocumentMode) -> Iterator[str]:
    """The texts in pieces, with DOCUMENT_END after each document; a stream has no documents.

    Documents are never blank. In a stream each text begins on a new line.

    Raises:
        ValueError: a line is too long, where lines matter.
    """
    match mode:
        case "stream":
            return _gathered(_joined(texts))
        case "files":
            return _gathered(_whole(texts))
        case "lines" | "blank-lines":
            return _gathered(_of_lines(texts, are_lines=mode == "lines"))


def _gathered(pieces: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    n_characters = 0
    for piece in pieces:
        held.append(piece)
        n_characters += len(piece)
        if n_characters >= LEAST_PIECE:
            yield "".join(held)
            held, n_characters = [], 0
    if n_characters:
        yield "".join(held)


def _joined(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    last = "\n"
    for text in texts:
        if last != "\n":
            yield "\n"
        for piece in filter(None, text):
            yield piece
            last = piece[-1]


def _whole(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    for text in texts:
        blank, has_text = "", False  # white space, which belongs to the document if text follows
        for piece in text:
            if has_text or piece.strip():
                yield blank + piece
                blank, has_text = "", True
            elif len(blank) < MAX_LINE:
                blank += piece
        if has_text:
            yield DOCUMENT_END


def _of_lines(texts: Iterable[Iterable[str]], *, are_lines: bool) -> Iterator[str]:
    between = DOCUMENT_END if are_lines else "\n"
    for text in texts:
        is_open = False
        for lines in _lines(text):
            parts: list[str] = []
            for line in lines:
                if line and not line.isspace():
                    parts += (between, line) if is_open else (line,)
                    is_open = True
                elif is_open and not are_lines:
                    parts.append(DOCUMENT_END)
                    is_open = False
            yield "".join(parts)
        if is_open:
            yield DOCUMENT_END


def _lines(text: Iterable[str]) -> Iterator[list[str]]:
    """Whole lines without their ends, as many at a time as a piece has."""
    begun = ""
    for piece in text:
        *lines, begun = (begun + piece).split("\n")
        if len(begun) > MAX_LINE:
            raise ValueError(
                f"documents: expected lines of at most {MAX_LINE} characters, got a longer one; "
                "choose documents = stream or files"
            )
        if lines:
            yield lines
    yield [begun]

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text import documents
from fedlearn.text.documents import LEAST_PIECE, DocumentMode, EncodedText, bits_per_character, mark_documents
from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.tokens import DOCUMENT_END

MODES: tuple[DocumentMode, ...] = ("stream", "blank-lines", "lines", "files")


def pieces_of(text: str, length: int = 3) -> Iterable[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


def marked(*texts: str, mode: DocumentMode, length: int = 3) -> str:
    """With ends of documents as a vertical bar."""
    pieces = mark_documents([pieces_of(text, length) for text in texts], mode)
    return "".join(pieces).replace(DOCUMENT_END, "|")


def test_stream_has_no_documents_and_its_texts_begin_lines() -> None:
    assert marked("a\n\nb", "c\n", "", "d", mode="stream") == "a\n\nb\nc\nd"


def test_blank_lines_separate_documents_and_indentation_stays() -> None:
    text = "\n \n  one\ntwo \n\n\t\n   three\n\n"
    assert marked(text, "four", mode="blank-lines") == "  one\ntwo |   three|four|"


def test_each_line_with_text_is_a_document() -> None:
    assert marked("\n one\ntwo\n \n", "three", "\n", mode="lines") == " one|two|three|"


def test_each_file_with_text_is_a_document() -> None:
    assert marked("\n one\n\ntwo\n", "   \n \n", "three", mode="files") == "\n one\n\ntwo\n|three|"


def test_nothing_but_white_space_is_no_document() -> None:
    for mode in MODES:
        assert marked("\n \n", mode=mode).strip() == ""


@given(
    texts=st.lists(st.text(st.sampled_from("ab \n\t"), max_size=12), max_size=4),
    mode=st.sampled_from(MODES),
    length=st.integers(1, 5),
)
def test_pieces_make_no_difference_and_no_document_is_blank(texts: list[str], mode: DocumentMode, length: int) -> None:
    text = marked(*texts, mode=mode, length=length)
    assert text == marked(*texts, mode=mode, length=100)
    assert [c for c in text if c in "ab"] == [c for c in "".join(texts) if c in "ab"]
    if mode != "stream":
        *found, rest = text.split("|")
        assert rest == ""
        assert all(document.strip() for document in found)


def test_line_that_is_too_long_to_hold_is_refused_where_lines_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_LINE", 8)
    assert marked("a" * 8, mode="lines") == "aaaaaaaa|"
    modes: tuple[DocumentMode, ...] = ("lines", "blank-lines")
    for mode in modes:
        with pytest.raises(ValueError, match="at most 8 characters, got a longer one; choose documents = stream or"):
            marked("a" * 9, mode=mode)
    assert marked("a" * 9, mode="stream") == "aaaaaaaaa"


def test_uniform_bytes_cost_eight_bits_a_character() -> None:
    encoded = EncodedText(np.zeros(10, dtype=np.uint8), 10)
    assert encoded.bits_per_character(math.log(256)) == pytest.approx(8)


def test_two_tokens_a_character_double_the_bits() -> None:
    tokens = ByteTokenizer().encode_marked("éé")
    assert EncodedText(tokens, 2).bits_per_character(math.log(2)) == pytest.approx(2)


def test_unknown_characters_cost_bits_of_their_own() -> None:
    encoded = EncodedText(np.zeros(10, dtype=np.uint8), 10, unknown_bits=40.0)
    assert encoded.bits_per_character(math.log(2)) == pytest.approx(1 + 4)
    assert bits_per_character(math.log(2), 10, 5) == pytest.approx(2)


@pytest.mark.parametrize("mode", MODES)
def test_short_texts_come_together_in_few_pieces(mode: DocumentMode) -> None:
    texts = [["row ", f"{number}\n"] for number in range(20_000)]
    pieces = list(mark_documents(texts, mode))
    assert len(pieces) == sum(map(len, pieces)) // LEAST_PIECE + 1
    assert "".join(pieces).count("row ") == 20_000
    assert pieces[-1].rstrip(f"\n{DOCUMENT_END}").endswith("row 19999")

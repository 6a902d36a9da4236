import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.tokens import DOCUMENT_END


@given(st.text())
def test_any_text_survives(text: str) -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


def test_tokens_are_utf8_bytes() -> None:
    tokens = ByteTokenizer().encode("aé")
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [97, 0xC3, 0xA9]


def test_broken_utf8_decodes_to_a_replacement_character() -> None:
    assert ByteTokenizer().decode([0xC3, 97]) == "\ufffda"


def test_stop_is_the_last_token_and_decodes_to_nothing() -> None:
    assert ByteTokenizer().vocab_size == ByteTokenizer().stop_token + 1 == 257
    assert ByteTokenizer().decode([97, 256, 98]) == "ab"


def test_lone_surrogate_is_read_as_a_question_mark() -> None:
    assert ByteTokenizer().encode("\udc80").tolist() == [ord("?")]


def test_foreign_token_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 to 256, got 257"):
        ByteTokenizer().decode([257])


def test_ends_of_documents_become_stop() -> None:
    tokenizer = ByteTokenizer()
    stop = [tokenizer.stop_token]
    expected = [*tokenizer.encode("aé"), *stop, *stop, *tokenizer.encode("é")]
    assert tokenizer.encode_marked(f"aé{DOCUMENT_END}{DOCUMENT_END}é").tolist() == expected
    assert tokenizer.stop_token not in tokenizer.encode(f"aé{DOCUMENT_END}")

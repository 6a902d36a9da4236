import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.byte_tokenizer import ByteTokenizer
from fedlearn.text.documents import (
    DocumentMode,
    EncodedText,
    encode_documents,
    split_documents,
    split_train_validation,
)

LINES = st.lists(st.sampled_from(["", " ", "\t", "a", "  b", "cd "]), max_size=30)


def test_stream_is_one_document() -> None:
    assert split_documents("a\n\nb", "stream") == ["a\n\nb"]


def test_blank_lines_separate_documents_and_indentation_stays() -> None:
    text = "\n \n  one\ntwo \n\n\t\n   three\n\n"
    assert split_documents(text, "blank-lines") == ["  one\ntwo ", "   three"]


def test_documents_end_in_stop_and_a_stream_does_not() -> None:
    documents = encode_documents("a\n\n\nbc\n", ByteTokenizer(), "blank-lines")
    assert documents.tokens.tolist() == [97, 256, 98, 99, 256]
    assert documents.tokens.dtype == np.uint16
    assert documents.n_characters == 5
    stream = encode_documents("a\n\nb", ByteTokenizer(), "stream")
    assert stream.tokens.tolist() == [97, 10, 10, 98]
    assert stream.n_characters == 4


def test_text_without_documents_has_no_tokens() -> None:
    assert encode_documents("\n \n", ByteTokenizer(), "blank-lines").tokens.tolist() == []


def test_uniform_bytes_cost_eight_bits_a_character() -> None:
    encoded = EncodedText(np.zeros(10, dtype=np.uint16), 10)
    assert encoded.bits_per_character(math.log(256)) == pytest.approx(8)


def test_two_tokens_a_character_double_the_bits() -> None:
    encoded = encode_documents("éé", ByteTokenizer(), "stream")
    assert encoded.bits_per_character(math.log(2)) == pytest.approx(2)


def test_last_tenth_of_a_stream_is_for_validation() -> None:
    assert split_train_validation("0123456789" * 2, "stream") == ("012345678901234567", "89")


def test_documents_are_split_at_the_nearest_boundary() -> None:
    text = "a" * 50 + "\n\n" + "b" * 40 + "\n \n  " + "c" * 5 + "\n\n"
    train, validation = split_train_validation(text, "blank-lines")
    assert train.endswith("b\n \n")
    assert validation == "  ccccc\n\n"
    assert split_train_validation(text, "blank-lines", 0.5)[1].startswith("b")


@given(lines=LINES, mode=st.sampled_from(["stream", "blank-lines"]), fraction=st.floats(0.05, 0.95))
def test_parts_join_to_the_text_and_no_document_is_cut(lines: list[str], mode: DocumentMode, fraction: float) -> None:
    text = "\n".join(lines)
    try:
        train, validation = split_train_validation(text, mode, fraction)
    except ValueError:
        assert len(text) < 20 if mode == "stream" else len(split_documents(text, mode)) < 2
        return
    assert train + validation == text
    if mode == "blank-lines":
        parts = split_documents(train, mode), split_documents(validation, mode)
        assert parts[0] + parts[1] == split_documents(text, mode)
        assert all(parts)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, math.nan])
def test_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_train_validation("some text", "stream", fraction)


def test_one_document_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"got 1 document\(s\), 6 characters"):
        split_train_validation("\n\none\n", "blank-lines")

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
    split_text,
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


def test_last_twentieths_of_a_stream_are_for_validation_and_test() -> None:
    assert split_text("0123456789" * 2, "stream") == ("012345678901234567", "8", "9")


def test_documents_are_split_at_the_nearest_boundaries() -> None:
    text = "a" * 50 + "\n\n" + "b" * 40 + "\n \n  " + "c" * 5 + "\n\n" + "d" * 3 + "\n\n"
    train, validation, test = split_text(text, "blank-lines")
    assert train.endswith("b\n \n")
    assert validation == "  ccccc\n\n"
    assert test == "ddd\n\n"
    assert split_text(text, "blank-lines", validation_fraction=0.45)[1].startswith("b")


@pytest.mark.parametrize("sizes", [(1, 1, 98), (1, 98, 1), (98, 1, 1)])
def test_three_documents_suffice_whatever_their_sizes(sizes: tuple[int, ...]) -> None:
    text = "\n\n".join("x" * size for size in sizes)
    assert [part.count("x") for part in split_text(text, "blank-lines")] == list(sizes)


@given(
    lines=LINES,
    mode=st.sampled_from(["stream", "blank-lines"]),
    fractions=st.tuples(st.floats(0.05, 0.45), st.floats(0.05, 0.45)),
)
def test_parts_join_to_the_text_and_no_document_is_cut(
    lines: list[str], mode: DocumentMode, fractions: tuple[float, float]
) -> None:
    text = "\n".join(lines)
    try:
        parts = split_text(text, mode, validation_fraction=fractions[0], test_fraction=fractions[1])
    except ValueError:
        assert len(text) < 30 if mode == "stream" else len(split_documents(text, mode)) < 3
        return
    assert "".join(parts) == text
    if mode == "blank-lines":
        documents = [split_documents(part, mode) for part in parts]
        assert [document for part in documents for document in part] == split_documents(text, mode)
        assert all(documents)


@pytest.mark.parametrize("fractions", [(0.0, 0.1), (0.1, 0.0), (0.5, 0.5), (-0.1, 0.1), (math.nan, 0.1)])
def test_fractions_out_of_range_are_refused(fractions: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="both together below 1"):
        split_text("some text", "stream", validation_fraction=fractions[0], test_fraction=fractions[1])


def test_two_documents_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"got 2 document\(s\), 11 characters"):
        split_text("\n\none\n\ntwo\n", "blank-lines")

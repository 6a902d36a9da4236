import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text import splitting
from fedlearn.text.splitting import Survey, split
from fedlearn.text.tokens import DOCUMENT_END


def ended(*documents: str) -> str:
    return "".join(document + DOCUMENT_END for document in documents)


def parts_of(text: str, length: int = 4) -> list[str]:
    pieces = [text[start : start + length] for start in range(0, len(text), length)]
    parts = ["", "", ""]
    for part, piece in split(pieces, Survey(pieces).cuts()):
        parts[part] += piece
    return parts


def test_last_twentieths_of_a_stream_are_for_validation_and_test() -> None:
    assert parts_of("0123456789" * 2) == ["012345678901234567", "8", "9"]


def test_documents_are_split_at_the_nearest_ends() -> None:
    documents = ["a" * 50, "b" * 40, "c" * 5, "d" * 3]
    assert parts_of(ended(*documents)) == [ended(*documents[:2]), ended("c" * 5), ended("d" * 3)]


@pytest.mark.parametrize("sizes", [(1, 1, 98), (1, 98, 1), (98, 1, 1)])
def test_three_documents_suffice_whatever_their_sizes(sizes: tuple[int, ...]) -> None:
    documents = ["x" * size for size in sizes]
    assert parts_of(ended(*documents)) == [ended(document) for document in documents]


@given(st.lists(st.integers(1, 9), min_size=3, max_size=30), st.integers(1, 20))
def test_parts_join_to_the_text_and_no_document_is_cut(sizes: list[int], length: int) -> None:
    text = ended(*("x" * size for size in sizes))
    parts = parts_of(text, length)
    assert "".join(parts) == text
    assert all(part.endswith(DOCUMENT_END) for part in parts)


@given(st.lists(st.integers(1, 9), min_size=40, max_size=80), st.integers(1, 50))
def test_of_many_documents_some_ends_are_remembered_and_they_are_ends(sizes: list[int], length: int) -> None:
    text = ended(*("x" * size for size in sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "MAX_BOUNDARIES", 8)
        parts = parts_of(text, length)
        assert parts == parts_of(text, 1000)
    assert "".join(parts) == text
    assert all(part.endswith(DOCUMENT_END) for part in parts)


def test_two_documents_can_not_be_split() -> None:
    with pytest.raises(ValueError, match=r"got 2 document\(s\) of 8 characters; give more documents, or choose"):
        Survey([ended("one", "two")]).cuts()
    with pytest.raises(ValueError, match=r"validation and test, got 4 characters; give a longer text"):
        Survey(["four"]).cuts()


def test_survey_says_whether_there_is_anything() -> None:
    assert Survey([" \n", "\t"]).is_blank
    survey = Survey([" \n", f"a{DOCUMENT_END}", "b"])
    assert (survey.is_blank, survey.n_characters, survey.n_documents) == (False, 5, 1)

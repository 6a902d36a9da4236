import sys

import numpy as np
import pytest

from fedlearn.text.tokenizers import bpe as bpe_tokenizer
from fedlearn.text.tokenizers.bpe import train_bpe_tokenizer
from fedlearn.text.tokens import DOCUMENT_END

TEXT = "the cat sat on the mat and the dog sat on the log\n\n" * 20


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'fedlearn\[bpe\]'"):
        train_bpe_tokenizer([TEXT], vocab_size=300)


@pytest.fixture
def _library() -> None:
    pytest.importorskip("tokenizers", reason="the extra bpe is not installed")


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("text", ["the cat", " leading", "new\n\nlines ", "unseen é 漢 \x00", "<stop>", ""])
def test_any_text_survives(text: str) -> None:
    tokenizer = train_bpe_tokenizer([TEXT], vocab_size=300)
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.uint16
    assert tokenizer.stop_token not in tokens
    assert tokenizer.decode(tokens) == text


@pytest.mark.usefixtures("_library")
def test_frequent_words_take_one_token() -> None:
    tokenizer = train_bpe_tokenizer([TEXT], vocab_size=300)
    assert len(tokenizer.encode(TEXT)) < len(TEXT) / 3


@pytest.mark.usefixtures("_library")
def test_vocabulary_has_the_size_asked_for_unless_the_text_is_too_small() -> None:
    assert train_bpe_tokenizer([TEXT], vocab_size=270).vocab_size == 270
    assert train_bpe_tokenizer(["ab"], vocab_size=0).vocab_size == 257


@pytest.mark.usefixtures("_library")
def test_training_is_deterministic() -> None:
    assert train_bpe_tokenizer([TEXT], vocab_size=300) == train_bpe_tokenizer([TEXT], vocab_size=300)


@pytest.mark.usefixtures("_library")
def test_lone_surrogate_is_read_as_a_question_mark() -> None:
    tokenizer = train_bpe_tokenizer([TEXT + "\udc80"], vocab_size=300)
    assert tokenizer.encode("\udc80").tolist() == tokenizer.encode("?").tolist()


@pytest.mark.usefixtures("_library")
def test_stop_decodes_to_nothing() -> None:
    tokenizer = train_bpe_tokenizer([TEXT], vocab_size=300)
    assert tokenizer.decode([*tokenizer.encode("cat"), tokenizer.stop_token]) == "cat"


@pytest.mark.usefixtures("_library")
def test_ends_of_documents_become_stop_wherever_the_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_bpe_tokenizer([TEXT], vocab_size=300)
    marked = f"one{DOCUMENT_END}{DOCUMENT_END}two three{DOCUMENT_END}"
    for slice_length in (1, 4, 1000):
        monkeypatch.setattr(bpe_tokenizer, "_SLICE", slice_length)
        tokens = tokenizer.encode_marked(marked)
        documents = np.split(tokens, np.flatnonzero(tokens == tokenizer.stop_token))
        assert [tokenizer.decode(document) for document in documents] == ["one", "", "two three", ""]
    assert tokenizer.encode_marked("").tolist() == []


AWKWARD = (
    TEXT * 20,
    "no cuts" + "x" * 20_000 + " end",
    ("word  two spaces   three\t tab \n\n\n lines\r\x1c\x1f\x85\xa0\u2003\u3000 x") * 400,
    "é 漢字 don't it's 'll 12 34, !? ... \u200b a\u0301 \U0001f600\U0001f600 " * 300,
    " " * 20_000,
    "\n" * 9000 + "a" + " \n" * 9000,
)


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("text", AWKWARD)
def test_tokens_do_not_depend_on_where_a_long_text_is_cut(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_bpe_tokenizer([TEXT, *AWKWARD], vocab_size=400)
    whole = bpe_tokenizer._library_tokenizer(tokenizer.library_json).encode(text).ids
    assert tokenizer.encode(text).tolist() == whole
    monkeypatch.setattr(bpe_tokenizer, "_PIECE", 3)
    monkeypatch.setattr(bpe_tokenizer, "_SLICE", 40)
    assert tokenizer.encode(text).tolist() == whole


@pytest.mark.usefixtures("_library")
def test_every_character_may_stand_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_bpe_tokenizer([TEXT], vocab_size=300)
    code_points = (*range(0xD800), *range(0xE000, 0x11000))
    text = "".join(f"a{chr(point)} {chr(point)}\n b" for point in code_points)
    whole = bpe_tokenizer._library_tokenizer(tokenizer.library_json).encode(text).ids
    monkeypatch.setattr(bpe_tokenizer, "_PIECE", 1)
    assert tokenizer.encode(text).tolist() == whole

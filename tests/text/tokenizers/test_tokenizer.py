import msgspec
import pytest

from fedlearn.text.tokenizers.bpe import BpeTokenizer
from fedlearn.text.tokenizers.tokenizer import TokenizerKind, tokenizer_from_json, train_tokenizer

TEXT = 'Once "upon" a time\n\nthere was a naïve \\ tokenizer. ' * 10


@pytest.mark.parametrize("kind", ["bytes", "chars", "bpe"])
def test_every_kind_returns_from_json_as_it_was(kind: TokenizerKind) -> None:
    if kind == "bpe":
        pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
    tokenizer = train_tokenizer(kind, [TEXT])
    restored = tokenizer_from_json(msgspec.json.encode(tokenizer).decode())
    assert restored == tokenizer
    assert type(restored) is type(tokenizer)
    assert restored.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()


@pytest.mark.parametrize(
    ("kind", "vocab_size"), [("bytes", 256), ("chars", 2), ("chars", 65_536), ("bpe", 256), ("bpe", 65_536)]
)
def test_impossible_vocabulary_size_is_refused(kind: TokenizerKind, vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size: expected .* for the tokenizer '{kind}', got {vocab_size}"):
        train_tokenizer(kind, [TEXT], vocab_size)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of bytes, chars, bpe, got 'words'"):
        train_tokenizer("words", [TEXT])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind":"words"}', '{"kind":"chars"}', '{"kind":"chars","characters":"aa"}']
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"restore the run's tokenizer\.json"):
        tokenizer_from_json(text)


def test_json_that_is_nested_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match=r"recursion depth .* restore the run's tokenizer\.json"):
        tokenizer_from_json('{"other":' + "[" * 100_000)


def test_bpe_tokenizer_is_read_without_its_library() -> None:
    assert tokenizer_from_json('{"kind":"bpe","library_json":"{}"}') == BpeTokenizer("{}")

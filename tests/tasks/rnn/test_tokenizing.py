import math

import msgspec
import numpy as np
import pytest

from fedlearn.tasks.rnn import tokenizing
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.tokenizing import build_dataset
from fedlearn.text import documents
from fedlearn.text.documents import DocumentMode
from fedlearn.text.tokenizers.tokenizer import TokenizerKind
from tests.tasks.followed import Followed
from tests.tasks.memory_folder import MemoryFolder, TextSource

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))


def built(
    *texts: str,
    tokenizer: TokenizerKind = "chars",
    vocab_size: int = 0,
    documents: DocumentMode = "stream",
    piece: int = 1000,
) -> Dataset:
    source = TextSource(*(texts or [PARAGRAPHS]), piece=piece)
    return build_dataset(source, MemoryFolder({}), tokenizer=tokenizer, vocab_size=vocab_size, documents=documents)


def test_dataset_holds_the_text_in_three_parts() -> None:
    dataset = built()
    parts = dataset.train, dataset.validation, dataset.test
    assert dataset.tokenizer.decode([token for part in parts for token in part.tokens]) == PARAGRAPHS
    assert sum(part.n_characters for part in parts) == len(PARAGRAPHS)
    assert len(dataset.validation.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert len(dataset.test.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert dataset.validation.bits_per_character(math.log(2)) == pytest.approx(1)


@pytest.mark.parametrize("tokenizer", ["chars", "bytes"])
@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_pieces_make_no_difference(tokenizer: TokenizerKind, documents: DocumentMode) -> None:
    whole, pieces = (built(tokenizer=tokenizer, documents=documents, piece=piece) for piece in (10_000, 7))
    assert pieces.record == whole.record
    np.testing.assert_array_equal(pieces.train.tokens, whole.train.tokens)
    np.testing.assert_array_equal(pieces.test.tokens, whole.test.tokens)


@pytest.mark.parametrize("tokenizer", ["chars", "bytes", "bpe"])
def test_documents_end_in_stop(tokenizer: TokenizerKind) -> None:
    if tokenizer == "bpe":
        pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
    dataset = built(tokenizer=tokenizer, documents="blank-lines")
    stop = dataset.tokenizer.stop_token
    assert dataset.record.n_documents == 100
    assert (dataset.record.reset_token, built(tokenizer=tokenizer).record.reset_token) == (stop, -1)
    assert "?" not in msgspec.json.encode(dataset.tokenizer).decode()[:100]  # as half a surrogate pair would be read
    documents = np.split(dataset.train.tokens, np.flatnonzero(dataset.train.tokens == stop) + 1)
    assert dataset.tokenizer.decode(documents[7][:-1]) == "Paragraph 7 says hello."
    assert (documents[7][-1], len(documents[-1])) == (stop, 0)
    assert dataset.train.n_characters == sum(len(f"Paragraph {number} says hello.") + 1 for number in range(90))


@pytest.mark.parametrize(("tokenizer", "size"), [("chars", 1), ("bytes", 2)])
def test_tokens_take_a_byte_where_the_vocabulary_allows_it(tokenizer: TokenizerKind, size: int) -> None:
    assert built(tokenizer=tokenizer).train.tokens.dtype.itemsize == size


def test_tokenizer_has_seen_the_training_text_only() -> None:
    cut = round(len(PARAGRAPHS) * 0.95)
    dataset = built(PARAGRAPHS[:cut] + " é" + PARAGRAPHS[cut:] + " é")
    for part in (dataset.validation, dataset.test):
        assert dataset.tokenizer.decode(part.tokens).count("\ufffd") == 1
        assert part.unknown_bits == dataset.tokenizer.bits_per_unknown > 20
    assert dataset.train.unknown_bits == 0


def test_unigram_counts_cover_the_vocabulary() -> None:
    stream = built()
    assert stream.unigram_counts.shape == (stream.tokenizer.vocab_size,)
    documents = built(documents="blank-lines")
    assert documents.unigram_counts.sum() == len(documents.train.tokens)
    assert documents.unigram_counts[documents.tokenizer.stop_token] == 90


def test_text_that_is_blank_or_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got only white space in text\.txt"):
        built(" \n\n")
    with pytest.raises(ValueError, match=r"expected at least 1000 characters to train on, got 5 in text\.txt"):
        built("short")


def test_disk_without_room_is_found_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = TextSource(PARAGRAPHS), MemoryFolder({})
    monkeypatch.setattr(folder, "free_bytes", len(PARAGRAPHS) - 1000)
    room = f"{len(PARAGRAPHS) / 1e3:,.0f}", f"{len(PARAGRAPHS) / 1e3 - 1:,.0f}"
    with pytest.raises(ValueError, match=rf"room for {room[0]} kB of tokens of text\.txt, {room[1]} kB are free; make"):
        build_dataset(source, folder)
    assert source.n_readings == 0
    monkeypatch.setattr(folder, "free_bytes", len(PARAGRAPHS))
    assert build_dataset(source, folder).record.n_documents == 0
    with pytest.raises(ValueError, match="make room"):
        build_dataset(source, folder, tokenizer="bytes")  # of two bytes each
    assert set(folder.files) == {"train.npy", "validation.npy", "test.npy"}


def test_progress_reaches_its_end_in_each_pass() -> None:
    followed = Followed()
    source = TextSource(PARAGRAPHS, PARAGRAPHS)
    build_dataset(source, MemoryFolder({}), progress=followed)
    assert followed.pieces == ["reading the data", "learning the tokenizer", "writing the tokens"]
    for _, unit, told in followed.told:
        assert (unit, told) == ("bytes", sorted(told))
        assert told[-1] == (source.size_bytes, source.size_bytes)


def test_byte_pairs_are_learned_from_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def train(kind: TokenizerKind, pieces: list[str], vocab_size: int) -> object:
        del kind, vocab_size
        seen.append(list(pieces))
        raise ValueError("enough")

    monkeypatch.setattr(tokenizing, "train_tokenizer", train)
    monkeypatch.setattr(tokenizing, "BPE_CHARACTERS", 500)
    monkeypatch.setattr(documents, "LEAST_PIECE", 1)
    text = "".join(map(chr, range(1000, 3000)))
    with pytest.raises(ValueError, match="enough"):
        built(text, tokenizer="bpe", piece=100)
    (pieces,) = seen
    assert pieces == [text[start : start + 100] for start in range(0, 1800, 400)]

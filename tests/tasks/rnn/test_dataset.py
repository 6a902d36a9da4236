import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.tasks.rnn.dataset import Dataset, build_dataset, dataset_files, dataset_of, load_text
from fedlearn.text.documents import DocumentMode
from fedlearn.text.tokenizer import TokenizerKind

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))


Files = dict[str, bytes]


def text_file(text: str | bytes = PARAGRAPHS) -> Callable[[str], bytes]:
    """Reads `text.txt`."""
    content = text.encode() if isinstance(text, str) else text
    return {"text.txt": content}.__getitem__


def built(
    text: str = PARAGRAPHS,
    *,
    tokenizer: TokenizerKind = "chars",
    vocab_size: int = 0,
    documents: DocumentMode = "stream",
) -> Dataset:
    return build_dataset("text.txt", text_file(text), tokenizer=tokenizer, vocab_size=vocab_size, documents=documents)


def read(name: str) -> bytes:
    return Path(name).read_bytes()


def npy(array: NDArray[Any], *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def restored(files: Files) -> Dataset:
    def read_file(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return dataset_of(read_file)


def test_python_docs_are_the_topics_in_order() -> None:
    text = load_text("python-docs", read)
    assert len(text) > 200_000
    assert text.startswith(topics[min(topics)] + "\n\n")
    assert text.endswith("\n\n" + topics[max(topics)])


def test_file_is_read_without_byte_order_mark_and_carriage_returns() -> None:
    assert load_text("text.txt", text_file(b"\xef\xbb\xbfna\xc3\xafve\r\nline\rend")) == "naïve\nline\nend"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected 'python-docs' or the path .* got '.*nothing\.txt': No such file"):
        load_text(str(tmp_path / "nothing.txt"), read)


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the path of a text file"):
        load_text(str(tmp_path), read)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="expected UTF-8 text, got other bytes at 3"):
        load_text("text.txt", text_file("abcé".encode("latin-1")))


def test_blank_text_is_refused() -> None:
    with pytest.raises(ValueError, match="only white space"):
        load_text("text.txt", text_file(" \n\n"))


def test_text_too_short_to_train_on_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1000 characters to train on, got 5"):
        built("short")


def test_dataset_holds_the_text_in_three_parts() -> None:
    dataset = built()
    parts = dataset.train, dataset.validation, dataset.test
    assert dataset.tokenizer.decode([token for part in parts for token in part.tokens]) == PARAGRAPHS
    assert sum(part.n_characters for part in parts) == len(PARAGRAPHS)
    assert len(dataset.validation.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert len(dataset.test.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert dataset.validation.bits_per_character(math.log(2)) == pytest.approx(1)


def test_tokenizer_has_seen_the_training_text_only() -> None:
    cut = round(len(PARAGRAPHS) * 0.95)
    dataset = built(PARAGRAPHS[:cut] + " é" + PARAGRAPHS[cut:] + " é")
    for part in (dataset.validation, dataset.test):
        assert dataset.tokenizer.decode(part.tokens).count("\ufffd") == 1


def test_unigram_counts_cover_the_vocabulary() -> None:
    stream = built()
    assert stream.unigram_counts.shape == (stream.tokenizer.vocab_size,)
    documents = built(documents="blank-lines")
    assert documents.unigram_counts.sum() == len(documents.train.tokens)
    assert documents.unigram_counts[documents.tokenizer.stop_token] == 90


@pytest.mark.parametrize("kind", ["bytes", "chars", "bpe"])
@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_dataset_returns_from_its_files(kind: TokenizerKind, documents: DocumentMode) -> None:
    if kind == "bpe":
        pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
    dataset = built(tokenizer=kind, documents=documents)
    again = restored(dataset_files(dataset))
    for name in ("train", "validation", "test"):
        part, original = getattr(again, name), getattr(dataset, name)
        assert part.tokens.dtype == np.uint16
        assert part.tokens.tolist() == original.tokens.tolist()
        assert part.n_characters == original.n_characters
    assert again.tokenizer == dataset.tokenizer
    assert again.documents == documents


def test_a_dataset_is_five_files_and_equal_ones_of_equal_texts() -> None:
    files = dataset_files(built(vocab_size=20))
    assert set(files) == {"train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"}
    assert dataset_files(built(vocab_size=20)) == files
    assert restored(files).tokenizer.vocab_size == 20


@pytest.mark.parametrize("name", ["train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"])
@pytest.mark.parametrize("damage", ["removed", "emptied", "overwritten"])
def test_damaged_dataset_is_refused(name: str, damage: str) -> None:
    files = dataset_files(built())
    match damage:
        case "removed":
            del files[name]
        case "emptied":
            files[name] = b""
        case "overwritten":
            files[name] = b"\x93nonsense"
    with pytest.raises(ValueError, match="dataset: expected the files of a dataset"):
        restored(files)


def test_files_without_a_test_part_are_refused() -> None:
    files = dataset_files(built())
    record = json.loads(files["dataset.json"])
    del record["test_characters"]
    with pytest.raises(ValueError, match=r"field `test_characters`; start a new run"):
        restored(files | {"dataset.json": json.dumps(record).encode()})


def test_record_that_is_nested_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="recursion depth"):
        restored(dataset_files(built()) | {"dataset.json": b'{"other":' + b"[" * 5000})


def test_pickled_tokens_are_refused() -> None:
    pickled = npy(np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        restored(dataset_files(built()) | {"train.npy": pickled})


def test_tokens_of_another_tokenizer_are_refused() -> None:
    foreign = npy(np.array([60_000], dtype=np.uint16))
    with pytest.raises(ValueError, match="got 60000"):
        restored(dataset_files(built()) | {"train.npy": foreign})


@pytest.mark.parametrize("tokenizer", ["chars", "bytes"])
def test_text_of_a_stream_begins_a_line_and_a_document_after_another(tokenizer: TokenizerKind) -> None:
    stream, documents = built(tokenizer=tokenizer), built(tokenizer=tokenizer, documents="blank-lines")
    assert stream.tokenizer.decode(stream.start) == "\n"
    assert documents.start.tolist() == [documents.tokenizer.stop_token]


def test_stream_without_lines_begins_where_nothing_was_before() -> None:
    dataset = built(PARAGRAPHS.replace("\n", " "))
    assert dataset.start.tolist() == [dataset.tokenizer.stop_token]


def test_unknown_characters_are_not_written_though_training_has_them() -> None:
    dataset = built(vocab_size=8)
    assert dataset.tokenizer.unknown_token is not None
    assert dataset.unigram_counts[dataset.tokenizer.unknown_token] > 0
    assert dataset.unwritten.tolist() == [dataset.tokenizer.unknown_token, dataset.tokenizer.stop_token]
    assert 0xFF in built(tokenizer="bytes").unwritten

import json
import math
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from fedlearn.storage.datasets import build_dataset, load_dataset, load_text, save_dataset
from fedlearn.text.documents import DocumentMode
from fedlearn.text.tokenizer import TokenizerKind

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(PARAGRAPHS, encoding="utf-8")
    return path


def test_python_docs_are_the_topics_in_order() -> None:
    text = load_text("python-docs")
    assert len(text) > 200_000
    assert text.startswith(topics[min(topics)] + "\n\n")
    assert text.endswith("\n\n" + topics[max(topics)])


def test_file_is_read_without_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbfna\xc3\xafve\r\nline")
    assert load_text(str(tmp_path / "text.txt")) == "naïve\nline"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected 'python-docs' or the path .* got '.*nothing\.txt': No such file"):
        load_text(str(tmp_path / "nothing.txt"))


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the path of a text file"):
        load_text(str(tmp_path))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes("abcé".encode("latin-1"))
    with pytest.raises(ValueError, match="expected UTF-8 text, got other bytes at 3"):
        load_text(str(tmp_path / "text.txt"))


def test_blank_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match="only white space"):
        load_text(str(tmp_path / "text.txt"))


def test_text_too_short_to_train_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("short")
    with pytest.raises(ValueError, match="expected at least 1000 characters to train on, got 5"):
        build_dataset(str(tmp_path / "text.txt"))


def test_dataset_holds_the_text_in_three_parts(text_file: Path) -> None:
    dataset = build_dataset(str(text_file))
    parts = dataset.train, dataset.validation, dataset.test
    assert dataset.tokenizer.decode([token for part in parts for token in part.tokens]) == PARAGRAPHS
    assert sum(part.n_characters for part in parts) == len(PARAGRAPHS)
    assert len(dataset.validation.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert len(dataset.test.tokens) == pytest.approx(len(PARAGRAPHS) / 20, abs=1)
    assert dataset.validation.bits_per_character(math.log(2)) == pytest.approx(1)


def test_tokenizer_has_seen_the_training_text_only(text_file: Path) -> None:
    cut = round(len(PARAGRAPHS) * 0.95)
    text_file.write_text(PARAGRAPHS[:cut] + " é" + PARAGRAPHS[cut:] + " é")
    dataset = build_dataset(str(text_file))
    for part in (dataset.validation, dataset.test):
        assert dataset.tokenizer.decode(part.tokens).count("\ufffd") == 1


def test_unigram_counts_cover_the_vocabulary(text_file: Path) -> None:
    stream = build_dataset(str(text_file))
    assert stream.unigram_counts.shape == (stream.tokenizer.vocab_size,)
    documents = build_dataset(str(text_file), documents="blank-lines")
    assert documents.unigram_counts.sum() == len(documents.train.tokens)
    assert documents.unigram_counts[documents.tokenizer.stop_token] == 90


@pytest.mark.parametrize("kind", ["bytes", "chars", "bpe"])
@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_dataset_returns_from_its_folder(
    tmp_path: Path, text_file: Path, kind: TokenizerKind, documents: DocumentMode
) -> None:
    if kind == "bpe":
        pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
    dataset = build_dataset(str(text_file), tokenizer=kind, documents=documents)
    save_dataset(tmp_path / "run" / "dataset", dataset)
    restored = load_dataset(tmp_path / "run" / "dataset")
    for name in ("train", "validation", "test"):
        part, original = getattr(restored, name), getattr(dataset, name)
        assert part.tokens.dtype == np.uint16
        assert part.tokens.tolist() == original.tokens.tolist()
        assert part.n_characters == original.n_characters
    assert restored.tokenizer == dataset.tokenizer
    assert restored.documents == documents


def test_saving_replaces_the_files_and_leaves_nothing_else(tmp_path: Path, text_file: Path) -> None:
    for vocab_size in (10, 20):
        save_dataset(tmp_path / "dataset", build_dataset(str(text_file), vocab_size=vocab_size))
    assert load_dataset(tmp_path / "dataset").tokenizer.vocab_size == 20
    assert {path.name for path in (tmp_path / "dataset").iterdir()} == {
        "train.npy",
        "validation.npy",
        "test.npy",
        "tokenizer.json",
        "dataset.json",
    }


@pytest.mark.parametrize("name", ["train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"])
@pytest.mark.parametrize("damage", ["removed", "emptied", "overwritten"])
def test_damaged_dataset_is_refused(tmp_path: Path, text_file: Path, name: str, damage: str) -> None:
    save_dataset(tmp_path, build_dataset(str(text_file)))
    match damage:
        case "removed":
            (tmp_path / name).unlink()
        case "emptied":
            (tmp_path / name).write_bytes(b"")
        case "overwritten":
            (tmp_path / name).write_bytes(b"\x93nonsense")
    with pytest.raises(ValueError, match="dataset: expected the files of a dataset"):
        load_dataset(tmp_path)


def test_folder_without_a_test_part_is_refused(tmp_path: Path, text_file: Path) -> None:
    save_dataset(tmp_path, build_dataset(str(text_file)))
    record = json.loads((tmp_path / "dataset.json").read_text())
    del record["test_characters"]
    (tmp_path / "dataset.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"field `test_characters`; start a new run"):
        load_dataset(tmp_path)


def test_pickled_tokens_are_refused(tmp_path: Path, text_file: Path) -> None:
    save_dataset(tmp_path, build_dataset(str(text_file)))
    np.save(tmp_path / "train.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        load_dataset(tmp_path)


def test_tokens_of_another_tokenizer_are_refused(tmp_path: Path, text_file: Path) -> None:
    save_dataset(tmp_path, build_dataset(str(text_file)))
    np.save(tmp_path / "train.npy", np.array([60_000], dtype=np.uint16))
    with pytest.raises(ValueError, match="got 60000"):
        load_dataset(tmp_path)

import io
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.tasks.rnn.dataset import Dataset, dataset_files, dataset_in
from fedlearn.tasks.rnn.tokenizing import build_dataset
from fedlearn.text.documents import DocumentMode
from fedlearn.text.tokenizers.tokenizer import TokenizerKind
from tests.tasks.memory_folder import MemoryFolder, TextSource

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))

Files = dict[str, bytes]


def built(
    text: str = PARAGRAPHS,
    *,
    tokenizer: TokenizerKind = "chars",
    vocab_size: int = 0,
    documents: DocumentMode = "stream",
) -> Dataset:
    return built_in(MemoryFolder({}), text, tokenizer=tokenizer, vocab_size=vocab_size, documents=documents)


def built_in(folder: MemoryFolder, text: str = PARAGRAPHS, **options: Any) -> Dataset:  # noqa: ANN401
    """The dataset, of which all files are in the folder."""
    dataset = build_dataset(TextSource(text), folder, **options)
    folder.files |= dataset_files(dataset)
    return dataset


def files_of(**options: Any) -> Files:  # noqa: ANN401 (of `build_dataset`)
    folder = MemoryFolder({})
    built_in(folder, **options)
    return folder.files


def restored(files: Files) -> Dataset:
    return dataset_in(MemoryFolder(files))


def npy(array: NDArray[Any], *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["bytes", "chars", "bpe"])
@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_dataset_returns_from_its_files(kind: TokenizerKind, documents: DocumentMode) -> None:
    if kind == "bpe":
        pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
    folder = MemoryFolder({})
    dataset = built_in(folder, tokenizer=kind, documents=documents)
    again = restored(folder.files)
    for name in ("train", "validation", "test"):
        part, original = getattr(again, name), getattr(dataset, name)
        assert part.tokens.dtype == original.tokens.dtype
        assert part.tokens.tolist() == original.tokens.tolist()
        assert part.n_characters == original.n_characters
        assert part.unknown_bits == original.unknown_bits
    assert again.tokenizer == dataset.tokenizer
    assert again.record == dataset.record
    assert again.documents == documents


def test_a_dataset_is_five_files_and_equal_ones_of_equal_texts() -> None:
    files = files_of(vocab_size=20)
    assert set(files) == {"train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"}
    assert files_of(vocab_size=20) == files
    assert restored(files).tokenizer.vocab_size == 20


@pytest.mark.parametrize("name", ["train.npy", "validation.npy", "test.npy", "tokenizer.json", "dataset.json"])
@pytest.mark.parametrize("damage", ["removed", "emptied", "overwritten"])
def test_damaged_dataset_is_refused(name: str, damage: str) -> None:
    files = files_of()
    match damage:
        case "removed":
            del files[name]
        case "emptied":
            files[name] = b""
        case "overwritten":
            files[name] = b"\x93nonsense"
    with pytest.raises(ValueError, match="dataset: expected the files of a dataset"):
        restored(files)


def test_files_of_another_version_are_refused() -> None:
    files = files_of()
    record = json.loads(files["dataset.json"])
    del record["unigram_counts"]
    with pytest.raises(ValueError, match=r"field `unigram_counts`; start a new run"):
        restored(files | {"dataset.json": json.dumps(record).encode()})


def test_a_run_from_before_resets_goes_on_without() -> None:
    files = files_of(documents="blank-lines")
    record = json.loads(files["dataset.json"])
    assert record.pop("reset_token") >= 0
    assert restored(files | {"dataset.json": json.dumps(record).encode()}).record.reset_token == -1


def test_record_that_is_nested_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="recursion depth"):
        restored(files_of() | {"dataset.json": b'{"other":' + b"[" * 100_000})


def test_pickled_tokens_are_refused() -> None:
    pickled = npy(np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        restored(files_of() | {"train.npy": pickled})


@pytest.mark.parametrize("tokens", [np.zeros(7, dtype=np.uint8), np.zeros((7, 1), np.uint8), np.zeros(7, np.uint16)])
def test_tokens_of_another_dataset_are_refused(tokens: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"\d+ tokens of uint8 in train\.npy, got \[7.*\] of uint"):
        restored(files_of() | {"train.npy": npy(tokens)})


def test_counts_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"counts of 20 tokens, there are \d\d; start"):
        restored(files_of() | {"tokenizer.json": files_of(vocab_size=20)["tokenizer.json"]})


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

"""The text of a run: its tokens for training, validation and test, with their tokenizer.

Its files are `train.npy`, `validation.npy`, `test.npy`, `tokenizer.json` and `dataset.json`.
"""

import io

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.kind import ReadFile
from fedlearn.text.documents import DocumentMode, EncodedText, encode_documents, split_text
from fedlearn.text.tokenizer import Tokenizer, TokenizerKind, tokenizer_from_json, train_tokenizer
from fedlearn.text.tokens import TokenArray, as_tokens

PYTHON_DOCS = "python-docs"
MIN_CHARACTERS = 1000
"""Of a text to train on: a twentieth of it, for validation, should hold a window."""

_PARTS = ("train", "validation", "test")


class Dataset(msgspec.Struct, frozen=True, eq=False):
    """A text split 90/5/5, encoded by a tokenizer that saw the training part only."""

    train: EncodedText
    validation: EncodedText
    """What settings are chosen on."""
    test: EncodedText
    """The end of the text, which nothing is chosen on."""
    tokenizer: Tokenizer
    documents: DocumentMode

    @property
    def unigram_counts(self) -> NDArray[np.int64]:
        """How often each token occurs in training, [vocab_size]."""
        return np.bincount(self.train.tokens, minlength=self.tokenizer.vocab_size)

    @property
    def unwritten(self) -> NDArray[np.int64]:
        """The tokens [n] that a model has no business to write: those that training never showed, and `<unk>`."""
        is_unwritten = self.unigram_counts == 0
        if self.tokenizer.unknown_token is not None:
            is_unwritten[self.tokenizer.unknown_token] = True
        return np.flatnonzero(is_unwritten)

    @property
    def start(self) -> TokenArray:
        """The tokens [n] before the first one of a new text: a stream begins a line, a document follows on another."""
        if self.documents == "stream":
            line_end = self.tokenizer.encode("\n")
            if not np.isin(line_end, self.unwritten).any():
                return line_end
        return np.array([self.tokenizer.stop_token], dtype=np.uint16)


class _Record(msgspec.Struct, frozen=True):
    """`dataset.json`."""

    documents: DocumentMode
    train_characters: int
    validation_characters: int
    test_characters: int


def load_text(source: str, read_file: ReadFile) -> str:
    """The text of a UTF-8 file, or for 'python-docs' of the language reference that comes with CPython.

    Line ends become newlines, a byte order mark is dropped.

    Raises:
        ValueError: the file is missing, unreadable, not UTF-8 or blank.
    """
    if source == PYTHON_DOCS:
        from pydoc_data.topics import topics  # half a megabyte that only this source needs

        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        text = read_file(source).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(
            f"data: expected {PYTHON_DOCS!r} or the path of a text file, got {source!r}: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"data: expected UTF-8 text, got other bytes at {error.start} in {source!r}; convert the file"
        ) from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise ValueError(f"data: expected a text, got only white space in {source!r}; choose another file")
    return text


def build_dataset(
    source: str,
    read_file: ReadFile,
    *,
    tokenizer: TokenizerKind = "chars",
    vocab_size: int = 0,
    documents: DocumentMode = "stream",
) -> Dataset:
    """The dataset of the text at `source`, whose tokenizer is trained here.

    Raises:
        ValueError: the text cannot be read or is too short, or the tokenizer cannot have that size.
        ImportError: `bpe` without the `tokenizers` library.
    """
    text = load_text(source, read_file)
    if len(text) < MIN_CHARACTERS:
        raise ValueError(
            f"data: expected at least {MIN_CHARACTERS} characters to train on, got {len(text)} in {source!r}"
        )
    train, validation, test = split_text(text, documents)
    trained = train_tokenizer(tokenizer, train, vocab_size)
    return Dataset(
        train=encode_documents(train, trained, documents),
        validation=encode_documents(validation, trained, documents),
        test=encode_documents(test, trained, documents),
        tokenizer=trained,
        documents=documents,
    )


def dataset_files(dataset: Dataset) -> dict[str, bytes]:
    """The files of the dataset, by name; `dataset_of` reads them again."""
    parts = dataset.train, dataset.validation, dataset.test
    record = _Record(dataset.documents, *(part.n_characters for part in parts))
    return {
        **{f"{name}.npy": _npy(part.tokens) for name, part in zip(_PARTS, parts, strict=True)},
        "tokenizer.json": dataset.tokenizer.to_json().encode(),
        "dataset.json": msgspec.json.encode(record),
    }


def dataset_of(read_file: ReadFile) -> Dataset:
    """The dataset whose files these are.

    Raises:
        ValueError: a file is missing, damaged, or of a version that had no part for tests.
    """
    try:
        record = msgspec.json.decode(read_file("dataset.json"), type=_Record)
        tokenizer = tokenizer_from_json(read_file("tokenizer.json").decode())
        train, validation, test = (
            as_tokens(
                np.load(io.BytesIO(read_file(f"{name}.npy")), allow_pickle=False), vocab_size=tokenizer.vocab_size
            )
            for name in _PARTS
        )
    except (OSError, EOFError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"dataset: expected the files of a dataset, got: {error}; start a new run") from error
    return Dataset(
        train=EncodedText(train, record.train_characters),
        validation=EncodedText(validation, record.validation_characters),
        test=EncodedText(test, record.test_characters),
        tokenizer=tokenizer,
        documents=record.documents,
    )


def _npy(tokens: TokenArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, tokens, allow_pickle=False)
    return buffer.getvalue()

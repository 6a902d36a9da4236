"""The text of a run: its tokens for training, validation and test, with their tokenizer.

Its files are `train.npy`, `validation.npy` and `test.npy`, of which only what is read takes memory, `tokenizer.json`
and `dataset.json`.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.kind import DataFolder
from fedlearn.text.documents import DocumentMode, EncodedText
from fedlearn.text.tokenizers.tokenizer import Tokenizer, tokenizer_from_json
from fedlearn.text.tokens import TokenArray, stored_type

PARTS = ("train", "validation", "test")


class PartRecord(msgspec.Struct, frozen=True):
    """What `dataset.json` says of a part."""

    n_tokens: int
    n_characters: int
    n_unknown: int
    """Tokens that are `<unk>`."""


class DatasetRecord(msgspec.Struct, frozen=True):
    """`dataset.json`."""

    documents: DocumentMode
    n_documents: int
    """Number of documents in all parts; 0 in a stream."""
    parts: tuple[PartRecord, PartRecord, PartRecord]
    """The parts for training, validation and test."""
    unigram_counts: list[int]
    """How often each token occurs in training."""
    reset_token: int = -1
    """Ends a document: the network reads it from a state of zeros. -1 is no token, as in a stream."""


class Dataset(msgspec.Struct, frozen=True, eq=False):
    """A text split 90/5/5, encoded by a tokenizer that saw the training part only."""

    train: EncodedText
    validation: EncodedText
    """What settings are chosen on."""
    test: EncodedText
    """The end of the text, which nothing is chosen on."""
    tokenizer: Tokenizer
    record: DatasetRecord

    @property
    def documents(self) -> DocumentMode:
        """What a document is."""
        return self.record.documents

    @property
    def unigram_counts(self) -> NDArray[np.int64]:
        """How often each token occurs in training, [vocab_size]."""
        return np.array(self.record.unigram_counts, dtype=np.int64)

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


def dataset_files(dataset: Dataset) -> dict[str, bytes]:
    """The small files of the dataset, by name."""
    return {
        "tokenizer.json": msgspec.json.encode(dataset.tokenizer),
        "dataset.json": msgspec.json.encode(dataset.record),
    }


def dataset_in(folder: DataFolder) -> Dataset:
    """The dataset whose files are there.

    Raises:
        ValueError: a file is missing, damaged, or of another version.
    """
    try:
        record = msgspec.json.decode(folder.read("dataset.json"), type=DatasetRecord)
        tokenizer = tokenizer_from_json(folder.read("tokenizer.json").decode())
        if len(record.unigram_counts) != tokenizer.vocab_size:
            raise ValueError(f"counts of {tokenizer.vocab_size} tokens, there are {len(record.unigram_counts)}")
        return dataset_of(folder, tokenizer, record)
    except (OSError, EOFError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"dataset: expected the files of a dataset, got: {error}; start a new run") from error


def dataset_of(folder: DataFolder, tokenizer: Tokenizer, record: DatasetRecord) -> Dataset:
    """The dataset with the token files of a folder.

    Raises:
        ValueError: a file holds other tokens than the record says.
        OSError: a file can't be read.
    """
    named = zip(PARTS, record.parts, strict=True)
    train, validation, test = (_part(folder, tokenizer, name, part) for name, part in named)
    return Dataset(train=train, validation=validation, test=test, tokenizer=tokenizer, record=record)


def _part(folder: DataFolder, tokenizer: Tokenizer, name: str, record: PartRecord) -> EncodedText:
    tokens = folder.view(f"{name}.npy")
    expected = stored_type(tokenizer.vocab_size)
    if tokens.dtype != expected or tokens.shape != (record.n_tokens,):
        raise ValueError(
            f"{record.n_tokens} tokens of {expected} in {name}.npy, got {list(tokens.shape)} of {tokens.dtype}"
        )
    return EncodedText(tokens, record.n_characters, record.n_unknown * tokenizer.bits_per_unknown)

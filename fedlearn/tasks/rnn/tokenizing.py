"""Makes the token files of a dataset from a source of texts, in a few passes that each hold one piece in memory."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.kind import DataFolder
from fedlearn.tasks.rnn.dataset import PARTS, Dataset, DatasetRecord, PartRecord, dataset_of
from fedlearn.text.documents import DocumentMode, mark_documents
from fedlearn.text.source import NoProgress, Progress, Source
from fedlearn.text.splitting import Cuts, Survey, split
from fedlearn.text.tokenizers.tokenizer import Tokenizer, TokenizerKind, train_tokenizer
from fedlearn.text.tokens import DOCUMENT_END, TokenArray, stored_type

MIN_CHARACTERS = 1000
"""The least length of a text to train on, of which a twentieth, for validation, should hold a window."""

BPE_CHARACTERS = 2**23
"""Number of characters, evenly spread over the training text, from which byte pairs are learned."""

_PASSES = ("reading the data", "learning the tokenizer", "writing the tokens")
"""The passes over the text, each of which has its own speed."""


def build_dataset(
    source: Source,
    folder: DataFolder,
    *,
    tokenizer: TokenizerKind = "chars",
    vocab_size: int = 0,
    documents: DocumentMode = "stream",
    progress: Progress | None = None,
) -> Dataset:
    """The dataset of the texts in `source`, whose tokenizer is trained here; its token files are written.

    Raises:
        ValueError: the text cannot be read, is too short or too long for the disk, or the tokenizer cannot have that
            size.
        ImportError: `bpe` without the `tokenizers` library.
    """
    _check_room(folder, source.size_bytes, source)
    passes = _Passes(source, documents, progress or NoProgress())
    survey = Survey(passes.pieces(0))
    if survey.is_blank:
        raise ValueError(f"data: expected a text, got only white space in {source.name}; choose another")
    if survey.n_characters < MIN_CHARACTERS:
        raise ValueError(
            f"data: expected at least {MIN_CHARACTERS} characters to train on, got {survey.n_characters} in "
            f"{source.name}; give a longer text"
        )
    cuts = survey.cuts()
    seen = () if tokenizer == "bytes" else passes.training(cuts)
    if tokenizer == "bpe":
        seen = _sample(seen, cuts[0])
    trained = train_tokenizer(tokenizer, seen, vocab_size)
    n_tokens = survey.n_characters if tokenizer == "chars" else source.size_bytes
    _check_room(folder, n_tokens * stored_type(trained.vocab_size).itemsize, source)
    with ExitStack() as opened:
        writers = [_Writer(opened.enter_context(folder.create(f"{name}.npy")), trained) for name in PARTS]
        for part, piece in split(passes.pieces(2), cuts):
            writers[part].write(piece)
        train, validation, test = (writer.finish() for writer in writers)
    parts = train, validation, test
    reset_token = -1 if documents == "stream" else trained.stop_token
    record = DatasetRecord(documents, survey.n_documents, parts, writers[0].counts.tolist(), reset_token)
    return dataset_of(folder, trained, record)


@final
class _Passes:
    """The marked text, once and again, and how far each pass is."""

    def __init__(self, source: Source, documents: DocumentMode, progress: Progress) -> None:
        self._source = source
        self._documents: DocumentMode = documents
        self._progress = progress

    def pieces(self, number: int) -> Iterator[str]:
        done = 0
        self._progress.begin(_PASSES[number], "bytes")

        def read(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            self._progress.reach(done, self._source.size_bytes)

        return mark_documents(self._source.texts(read), self._documents)

    def training(self, cuts: Cuts) -> Iterator[str]:
        """What tokenizers learn from: neither the other parts nor the ends of documents."""
        for part, piece in split(self.pieces(1), cuts):
            if part > 0:
                return
            yield piece.replace(DOCUMENT_END, "\n")


@final
class _Writer:
    """Writes tokens into a `.npy` file whose length is known at the end."""

    def __init__(self, file: BinaryIO, tokenizer: Tokenizer) -> None:
        self.counts: NDArray[np.int64] = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        """How often each token was written."""
        self._file = file
        self._tokenizer = tokenizer
        self._type = stored_type(tokenizer.vocab_size)
        self._n_characters = 0
        self._write_header(0)

    def write(self, piece: str) -> None:
        tokens: TokenArray = self._tokenizer.encode_marked(piece)
        self.counts += np.bincount(tokens, minlength=len(self.counts))
        self._n_characters += len(piece)
        self._file.write(tokens.astype(self._type).data)

    def finish(self) -> PartRecord:
        n_tokens = int(self.counts.sum())
        self._file.seek(0)
        self._write_header(n_tokens)
        unknown = self._tokenizer.unknown_token
        return PartRecord(n_tokens, self._n_characters, 0 if unknown is None else int(self.counts[unknown]))

    def _write_header(self, n_tokens: int) -> None:
        """Headers leave room for any length, so that all are equally long."""
        header = {"descr": self._type.str, "fortran_order": False, "shape": (n_tokens,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _sample(pieces: Iterable[str], n_characters: int) -> Iterator[str]:
    """Every n-th piece, so that BPE_CHARACTERS are enough."""
    return islice(pieces, 0, None, max(-(-n_characters // BPE_CHARACTERS), 1))


def _check_room(folder: DataFolder, n_bytes: int, source: Source) -> None:
    if n_bytes > (free := folder.free_bytes):
        raise ValueError(
            f"data: expected a disk with room for {n_bytes / 1e3:,.0f} kB of tokens of {source.name}, "
            f"{free / 1e3:,.0f} kB are free; make room, or choose another place with --runs"
        )

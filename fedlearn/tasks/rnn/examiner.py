"""A recurrent network as people see it: bits per character, and what it writes."""

from collections.abc import Iterator, Mapping
from typing import final

import numpy as np
import safetensors.numpy

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.kind import TextExaminer
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.tasks.rnn.layout import to_torch_names
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.onnx_step import onnx_step
from fedlearn.text.documents import bits_per_character, mark_documents
from fedlearn.text.ngrams import NAMES, ngram_loss
from fedlearn.text.source import Texts
from fedlearn.text.tokens import StoredTokens, TokenArray

VALIDATION_ROWS = 64
"""Pieces of a text that are read side by side; each starts at the initial state."""

OPENING_TOKENS = 100
"""Number of tokens of the validation part in which the model's opening is found, since it may begin within a word."""

CHUNK_TOKENS = 2**20
"""The most tokens of the validation part that are read, and of another text that are read at once."""

BITS = "bits_per_character"

MAX_COUNTED_TOKENS = 2**22
"""The most tokens of the training and held-out texts that are counted, which takes seconds and 200 MB."""


@final
class RnnExaminer(TextExaminer):
    """Measures on the validation part of the text, of which a million tokens are enough."""

    def __init__(self, objective: RnnObjective, dataset: Dataset) -> None:
        self._objective = objective
        self._dataset = dataset
        self.tokenizer = dataset.tokenizer
        self.characters_per_token = dataset.train.n_characters / len(dataset.train.tokens)
        self.opening = " ".join(self.tokenizer.decode(dataset.validation.tokens[:OPENING_TOKENS]).split()[1:4])

    def show(self, loss: float) -> tuple[str, float]:
        return BITS, self._dataset.train.bits_per_character(loss)

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        part = self._dataset.validation
        loss = text_loss(self._objective, weights, part.tokens, threads=threads, most=CHUNK_TOKENS)
        return {BITS: part.bits_per_character(loss)}

    def validate_on(self, weights: Float32Array, texts: Texts, *, threads: int) -> tuple[dict[str, float], str]:
        n_characters = n_tokens = n_unknown = n_predicted = 0
        total = 0.0
        last: TokenArray = np.empty(0, dtype=np.uint16)  # the first input of the chunk after
        for tokens, n_read in self._chunks(texts):
            n_characters += n_read
            n_tokens += len(tokens)
            n_unknown += int(np.count_nonzero(tokens == self.tokenizer.unknown_token))
            chunk = np.concatenate([last, tokens])
            if len(chunk) > 1:
                total += text_loss(self._objective, weights, chunk, threads=threads) * (len(chunk) - 1)
                n_predicted += len(chunk) - 1
            last = chunk[-1:]
        if n_predicted == 0:
            raise ValueError(f"text: expected at least 2 tokens, got {n_tokens}; give a longer one")
        each = self.tokenizer.bits_per_unknown
        bits = bits_per_character(total / n_predicted, n_tokens, n_characters, n_unknown * each)
        note = (
            f"{n_unknown} of {n_characters} characters are unknown to the run's tokenizer; each costs what the model "
            f"gives <unk>, and {each:.1f} bits to say which it is"
        )
        return {BITS: bits}, note if n_unknown else ""

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return safetensors.numpy.save(to_torch_names(self._objective.layout, weights), {"format": "pt", **about})

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return onnx_step(self._objective, weights, about)

    def language_model(self, weights: Float32Array) -> RnnLanguageModel:
        dataset = self._dataset
        return RnnLanguageModel(
            self._objective,
            weights,
            stop_token=self.tokenizer.stop_token,
            start=dataset.start,
            never=dataset.unwritten,
            reads_documents=dataset.documents != "stream",
        )

    def baselines(self) -> dict[str, float]:
        train, held_out = self._dataset.train, self._dataset.validation
        seen, read = train.tokens[:MAX_COUNTED_TOKENS], held_out.tokens[:MAX_COUNTED_TOKENS]
        vocab_size = self.tokenizer.vocab_size
        return {
            name: held_out.bits_per_character(ngram_loss(seen, read, n, vocab_size=vocab_size))
            for n, name in NAMES.items()
            if n <= min(len(seen), len(read)) and vocab_size**n < 2**63
        }

    def _chunks(self, texts: Texts) -> Iterator[tuple[TokenArray, int]]:
        """The tokens of texts, about CHUNK_TOKENS at a time, and of how many characters they are."""
        waiting: list[TokenArray] = []
        n_characters = 0
        for piece in mark_documents(texts, self._dataset.documents):
            waiting.append(self.tokenizer.encode_marked(piece))
            n_characters += len(piece)
            if sum(map(len, waiting)) >= CHUNK_TOKENS:
                yield np.concatenate(waiting), n_characters
                waiting, n_characters = [], 0
        if waiting:
            yield np.concatenate(waiting), n_characters


def text_loss(
    objective: RnnObjective, weights: Float32Array, tokens: StoredTokens, *, threads: int, most: int = 0
) -> float:
    """Mean nats per token of the unperturbed network on a text, of which about `most` tokens are read (0: all).

    Raises:
        ValueError: the text has fewer than two tokens.
    """
    n_rows = min(VALIDATION_ROWS, len(tokens) - 1)
    if n_rows < 1:
        raise ValueError(f"text: expected at least 2 tokens, got {len(tokens)}")
    length = (len(tokens) - 1) // n_rows
    n_read = min(length, max(most // n_rows, 1)) if most else length
    # Rows overlap by one token: the last target of one is the first input of the next.
    places = np.arange(n_rows)[:, np.newaxis] * length + np.arange(n_read + 1)
    model = RnnLanguageModel(objective, weights)
    losses, _ = es_core.rnn_text_losses(
        *model.arguments,
        tokens=tokens[places].astype(np.uint16),
        state=model.initial_state(n_rows),
        cell=objective.cell,
        reset_token=objective.reset_token,
        threads=threads,
    )
    return float(losses.sum(dtype=np.float64)) / (n_rows * n_read)

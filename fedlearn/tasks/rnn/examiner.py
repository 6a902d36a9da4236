"""A recurrent network as people see it: bits per character, and what it writes."""

from collections.abc import Mapping
from typing import final

import numpy as np
import safetensors.numpy

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.tasks.rnn.layout import to_torch_names
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.onnx_step import onnx_step
from fedlearn.text.documents import EncodedText, encode_documents
from fedlearn.text.ngrams import NAMES, ngram_loss
from fedlearn.text.tokens import TokenArray

VALIDATION_ROWS = 64
"""Pieces of a text that are read side by side; each starts at the initial state."""

BITS = "bits_per_character"

MAX_COUNTED_TOKENS = 2**22
"""Of the training text, from its beginning, and of the held out one: counting them takes seconds and 200 MB."""


@final
class RnnExaminer:
    """Measures on the validation part of the text."""

    def __init__(self, objective: RnnObjective, dataset: Dataset) -> None:
        self._objective = objective
        self._dataset = dataset
        self.tokenizer = dataset.tokenizer
        self.characters_per_token = dataset.train.n_characters / len(dataset.train.tokens)

    def show(self, loss: float) -> tuple[str, float]:
        return BITS, self._dataset.train.bits_per_character(loss)

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        return self._bits(weights, self._dataset.validation, threads)

    def validate_on(self, weights: Float32Array, text: str, *, threads: int) -> dict[str, float]:
        encoded = encode_documents(text, self.tokenizer, self._dataset.documents)
        return self._bits(weights, encoded, threads)

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return safetensors.numpy.save(to_torch_names(self._objective.layout, weights), {"format": "pt", **about})

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        return onnx_step(self._objective, weights, about)

    def language_model(self, weights: Float32Array) -> RnnLanguageModel:
        dataset = self._dataset
        return RnnLanguageModel(
            self._objective, weights, stop_token=self.tokenizer.stop_token, start=dataset.start, never=dataset.unwritten
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

    def _bits(self, weights: Float32Array, text: EncodedText, threads: int) -> dict[str, float]:
        return {BITS: text.bits_per_character(text_loss(self._objective, weights, text.tokens, threads=threads))}


def text_loss(objective: RnnObjective, weights: Float32Array, tokens: TokenArray, *, threads: int) -> float:
    """Mean nats per token of the unperturbed network on a text. Raises ValueError for one without a pair of tokens."""
    n_rows = min(VALIDATION_ROWS, len(tokens) - 1)
    if n_rows < 1:
        raise ValueError(f"text: expected at least 2 tokens, got {len(tokens)}")
    length = (len(tokens) - 1) // n_rows
    # Rows overlap by one token: the last target of one is the first input of the next.
    places = np.arange(n_rows)[:, np.newaxis] * length + np.arange(length + 1)
    model = RnnLanguageModel(objective, weights)
    losses, _ = es_core.rnn_text_losses(
        *model.arguments, tokens=tokens[places], state=model.initial_state(n_rows), cell=objective.cell, threads=threads
    )
    return float(losses.sum(dtype=np.float64)) / (n_rows * length)

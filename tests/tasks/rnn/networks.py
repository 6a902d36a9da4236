"""A small network with weights, its text, and the same network in PyTorch."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.cells import CellName
from fedlearn.tasks.rnn.layout import to_torch_names
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.tokens import TokenArray
from fedlearn.text.windows import WindowShape

SEED = 21
VOCAB = 12
TOLERANCE = 1e-5
"""Nats per token."""

Tensor = Any
"""Of PyTorch, which may be absent."""


def rnn_of(
    n_layers: int = 1,
    *,
    context: int = 4,
    scored: int = 6,
    batch_size: int = 2,
    seed: int = SEED,
    cell: CellName = "tanh",
    reset_token: int = -1,
    unigram_counts: NDArray[np.int64] | None = None,
) -> RnnObjective:
    """An objective of 10 hidden units over VOCAB tokens."""
    return RnnObjective(
        seed=seed,
        vocab_size=VOCAB,
        hidden_size=10,
        n_layers=n_layers,
        window=WindowShape(batch_size=batch_size, context=context, scored=scored),
        embedding_scale=10.0,
        cell=cell,
        reset_token=reset_token,
        unigram_counts=unigram_counts,
    )


def weights_of(objective: RnnObjective) -> Float32Array:
    """None of them zero, units neither linear nor saturated."""
    weights = np.random.default_rng(1).standard_normal(objective.layout.size).astype(np.float32)
    return (0.3 * weights).astype(np.float32)


def text_of(n_tokens: int = 500) -> TokenArray:
    """Tokens at random."""
    return np.random.default_rng(2).integers(0, VOCAB, n_tokens).astype(np.uint16)


class TorchRnn:
    """The same network in PyTorch, with weights loaded under their PyTorch names."""

    def __init__(self, objective: RnnObjective, weights: Float32Array) -> None:
        self.torch: Any = pytest.importorskip("torch", reason="compares with PyTorch, the torch extra")
        self.vocab_size, self.reset_token = objective.shape[0], objective.reset_token
        named = {
            name: self.torch.from_numpy(array.copy())
            for name, array in to_torch_names(objective.layout, weights).items()
        }
        self.initial_state = named.pop("initial_state")
        _, hidden_size, n_layers = objective.shape
        nn = self.torch.nn
        cell = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[objective.cell]
        self.is_lstm = objective.cell == "lstm"
        self.module = nn.ModuleDict(
            {
                "rnn": cell(self.vocab_size, hidden_size, n_layers, batch_first=True),
                "head": nn.Linear(hidden_size, self.vocab_size),
            }
        )
        self.module.load_state_dict(named)

    def read(self, tokens: TokenArray, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits after each of the tokens [rows, n], and the state."""
        text = self.torch.from_numpy(tokens.astype(np.int64))
        one_hot = self.torch.nn.functional.one_hot(text, self.vocab_size).float()
        outputs = []
        with self.torch.no_grad():
            for place in range(text.shape[1]):
                state = state * (text[:, place] != self.reset_token)[None, :, None]
                read = one_hot[:, place : place + 1]
                if self.is_lstm:
                    hidden, both = self.module["rnn"](read, state.chunk(2))
                    state = self.torch.cat(both)
                else:
                    hidden, state = self.module["rnn"](read, state)
                outputs.append(hidden)
            return self.module["head"](self.torch.cat(outputs, dim=1)), state

    def start(self, n_rows: int) -> Tensor:
        """The initial state, once a row."""
        return self.initial_state[:, None].repeat(1, n_rows, 1)

    def loss(self, tokens: TokenArray, state: Tensor) -> float:
        """Mean nats per token of tokens [rows, n + 1]."""
        logits, _ = self.read(tokens[:, :-1], state)
        targets = self.torch.from_numpy(tokens[:, 1:].astype(np.int64))
        return float(self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))

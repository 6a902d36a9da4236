"""A recurrent network with its weights, as sampling and beam search read it."""

from typing import final

import numpy as np

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.tokens import TokenArray


@final
class RnnLanguageModel:
    """Reads one token a sequence at a time; its state is [n, layers, hidden]."""

    def __init__(self, objective: RnnObjective, weights: Float32Array, stop_token: int) -> None:
        self.vocab_size, hidden_size, n_layers = objective.shape
        self.stop_token = stop_token
        self._cell = objective.cell
        self.arguments = objective.network(weights)
        self._initial_state = objective.layout.split(weights)["initial_state"].reshape(n_layers, hidden_size)

    def initial_state(self, n_sequences: int) -> Float32Array:
        return np.repeat(self._initial_state[np.newaxis], n_sequences, axis=0)

    def next_log_probabilities(self, state: Float32Array, tokens: TokenArray) -> tuple[Float32Array, Float32Array]:
        log_probabilities, new_state = es_core.rnn_next_log_probabilities(
            *self.arguments,
            tokens=np.ascontiguousarray(tokens)[:, np.newaxis],
            state=np.ascontiguousarray(state),
            cell=self._cell,
        )
        return new_state, log_probabilities

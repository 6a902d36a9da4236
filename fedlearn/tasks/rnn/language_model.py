"""A recurrent network with its weights, as sampling and beam search read it."""

from typing import final

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.tokens import TokenArray


@final
class RnnLanguageModel:
    """Reads one token a sequence at a time; its state is [n, state vectors, hidden]."""

    def __init__(
        self,
        objective: RnnObjective,
        weights: Float32Array,
        *,
        stop_token: int = 0,
        start: TokenArray | None = None,
        never: NDArray[np.integer] | None = None,
        reads_documents: bool = False,
    ) -> None:
        """`start` is what an empty prompt stands for (default: `<stop>`), `never` are tokens that don't come next.

        A prompt comes after the `<stop>` of another document if the model `reads_documents`. In a stream it may come
        from anywhere, which is what the learned initial state stands for.
        """
        self.vocab_size, hidden_size, _ = objective.shape
        self.stop_token = stop_token
        self.start = np.array([stop_token], dtype=np.uint16) if start is None else start
        self._never = np.zeros(0, dtype=np.int64) if never is None else never
        self._cell, self._reset_token = objective.cell, objective.reset_token
        self.arguments = objective.network(weights)
        self._initial_state = objective.layout.split(weights)["initial_state"].reshape(-1, hidden_size)
        if reads_documents:
            after_stop, _ = self.next_log_probabilities(self.initial_state(1), np.array([stop_token], dtype=np.uint16))
            self._initial_state = after_stop[0]

    def initial_state(self, n_sequences: int) -> Float32Array:
        return np.repeat(self._initial_state[np.newaxis], n_sequences, axis=0)

    def next_log_probabilities(self, state: Float32Array, tokens: TokenArray) -> tuple[Float32Array, Float32Array]:
        log_probabilities, new_state = es_core.rnn_next_log_probabilities(
            *self.arguments,
            tokens=np.ascontiguousarray(tokens)[:, np.newaxis],
            state=np.ascontiguousarray(state),
            cell=self._cell,
            reset_token=self._reset_token,
        )
        log_probabilities[:, self._never] = -np.inf
        return new_state, log_probabilities

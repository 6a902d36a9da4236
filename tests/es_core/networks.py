"""Recurrent networks of every cell, what a population reads, and its losses."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.tasks.rnn.cells import CELLS, CellName
from fedlearn.tasks.rnn.layout import rnn_layout

Float32Array = NDArray[np.float32]
Tokens = NDArray[np.uint16]

CELL_NAMES = tuple(CELLS)
TOLERANCE = 1e-5
"""Nats per token."""


class Network(NamedTuple):
    """The first four are arguments of the core."""

    shape: tuple[int, int, int]
    tensors: NDArray[np.int64]
    scales: Float32Array
    weights: Float32Array
    cell: CellName = "tanh"

    @property
    def arguments(self) -> tuple[tuple[int, int, int], NDArray[np.int64], Float32Array, Float32Array]:
        return self[:4]

    @property
    def parts(self) -> dict[str, Float32Array]:
        """The weights by name; who changes them changes the network."""
        return rnn_layout(*self.shape, 1.0, self.cell).split(self.weights)

    @property
    def initial_state(self) -> Float32Array:
        """[vectors of all layers, hidden]; who changes it changes the network."""
        return self.parts["initial_state"].reshape(-1, self.shape[1])


def network_of(
    cell: CellName, vocab: int, hidden: int, layers: int, *, rank: int, seed: int = 0, gain: float = 0.0
) -> Network:
    """Weights of a size at which units are neither linear nor saturated, and gates neither open nor shut."""
    gain = gain or (0.7 if cell == "tanh" else 1.4)
    layout = rnn_layout(vocab, hidden, layers, 3.0, cell)
    weights = np.random.default_rng(seed).standard_normal(layout.size).astype(np.float32)
    for name, tensor in layout.split(weights).items():
        tensor *= gain / hidden**0.5 if "weight_" in name or name == "head.weight" else 0.5
    scales = np.array([tensor.scale for tensor in layout.tensors], dtype=np.float32)
    scales[-2:] = 2.0, 0.5  # the head's bias and the initial state, whose scales a run may choose as well
    return Network((vocab, hidden, layers), layout.table(rank), scales, weights, cell)


class Population(NamedTuple):
    """Groups of members, and the text that each group reads."""

    group_size: int
    tokens: Tokens
    """[groups, sequences, context + scored + 1]"""
    context: int
    is_cold: NDArray[np.uint8]


def population_of(
    vocab: int, *, group_size: int, n_groups: int, batch_size: int, context: int, scored: int, seed: int = 0
) -> Population:
    """Groups that read tokens at random; with a context every second one is cold."""
    tokens = np.random.default_rng(seed + 1).integers(0, vocab, (n_groups, batch_size, context + scored + 1))
    is_cold = np.arange(n_groups) % 2 if context else np.ones(n_groups)
    return Population(group_size, tokens.astype(np.uint16), context, is_cold.astype(np.uint8))


def member_losses(
    network: Network,
    population: Population,
    *,
    sigma: float = 0.05,
    first_group: int = 2**34,
    threads: int = 1,
    **options: Any,  # noqa: ANN401 (of the core)
) -> Float32Array:
    return es_core.rnn_member_losses(
        *network.arguments,
        seed=77,
        step=5,
        first_member=first_group * population.group_size,
        sigma=sigma,
        cell=network.cell,
        threads=threads,
        group_size=population.group_size,
        tokens=population.tokens,
        context=population.context,
        is_cold=population.is_cold,
        **options,
    )


def text_losses(
    network: Network, tokens: Tokens, state: Float32Array, *, reset_token: int = -1, threads: int = 0
) -> tuple[Float32Array, Float32Array]:
    """The losses of texts [rows, n], and the states after them."""
    return es_core.rnn_text_losses(
        *network.arguments,
        tokens=np.ascontiguousarray(tokens),
        state=state,
        cell=network.cell,
        reset_token=reset_token,
        threads=threads,
    )


def next_log_probabilities(
    network: Network, tokens: Tokens, state: Float32Array, *, reset_token: int = -1
) -> tuple[Float32Array, Float32Array]:
    """The log probabilities after texts [rows, n], and the states."""
    return es_core.rnn_next_log_probabilities(
        *network.arguments,
        tokens=np.ascontiguousarray(tokens),
        state=state,
        cell=network.cell,
        reset_token=reset_token,
    )


def states_of(network: Network, n_rows: int) -> Float32Array:
    """States at random, [rows, vectors of all layers, hidden]."""
    return np.random.default_rng(4).standard_normal((n_rows, *network.initial_state.shape)).astype(np.float32)

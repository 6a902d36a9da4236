"""The settings of a recurrent network and its text."""

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

import es_core
from fedlearn.config import ConfigError, RunConfig, setting
from fedlearn.tasks.rnn.cells import CELLS, Cell, CellName
from fedlearn.text.documents import DocumentMode

Precision = Literal["float32", "int8"]

MAX_WINDOW = 65536
"""Tokens of context, scored tokens, and sequences of a member, at most."""


class RnnOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A recurrent network that predicts the next token of a text."""

    data: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        setting(
            "texts to learn from: a file, folder, glob, URL (#sha256=HEX), hf:NAME[:COLUMN], - for standard input, or "
            "python-docs; may be repeated",
            min_length=1,
            common=True,
        ),
    ] = ("python-docs",)
    encoding: Annotated[str, setting("encoding of files, URLs and standard input", min_length=1)] = "utf-8"
    tokenizer: Annotated[Literal["chars", "bytes", "bpe"], setting("how text becomes tokens", common=True)] = "chars"
    vocab_size: Annotated[
        int, setting("tokens in the vocabulary; 0 = as many as the tokenizer needs", ge=0, le=65535)
    ] = 0
    documents: Annotated[
        DocumentMode,
        setting(
            "stream = all texts are one; or each text between blank lines, each line, or each file or row is a document"
        ),
    ] = "stream"
    new_tokens_interval: Annotated[
        int,
        setting("steps between new token blocks; 0 = one block if the text fits into one, else 100", ge=0, le=2**53),
    ] = 0
    block_tokens: Annotated[int, setting("tokens in a block, where there are several", ge=2, le=2**22)] = 1048576
    cell: Annotated[CellName, setting("what a recurrent layer computes", common=True)] = "tanh"
    hidden_size: Annotated[
        int,
        setting("units in each recurrent layer, 2 or more", ge=0, le=es_core.RNN_MAX_SIZE, automatic=True, common=True),
    ] = 0
    n_layers: Annotated[int, setting("recurrent layers", ge=1, le=es_core.RNN_MAX_LAYERS, common=True)] = 1
    embedding_scale: Annotated[float, setting("factor on sigma and learning rate of the embedding", gt=0, le=1e6)] = (
        10.0
    )
    precision: Annotated[
        Literal["auto", Precision],
        setting(
            "arithmetic of the trials; int8 is faster where the processor has int8 dot products",
            automatic=True,
            common=True,
        ),
    ] = "auto"
    batch_size: Annotated[int, setting("sequences that each member is evaluated on", ge=1, le=MAX_WINDOW)] = 1
    context: Annotated[
        int, setting("tokens that warm up the hidden state before the scored ones", ge=0, le=MAX_WINDOW)
    ] = 32
    sequence_length: Annotated[int, setting("scored tokens in a sequence", ge=1, le=MAX_WINDOW)] = 16
    control_variates: Annotated[
        bool, setting("predict losses from the noise on activations, by matrices that learn to, to lower the variance")
    ] = True

    def __post_init__(self) -> None:
        if self.hidden_size == 1:
            raise ConfigError("hidden_size: expected 2 or more, or 0 to let the run choose, got 1")
        window = self.context + self.sequence_length + 1
        if self.new_tokens_interval > 0 and self.block_tokens < window:
            raise ConfigError(
                f"block_tokens: expected at least one window (context + sequence_length + 1 = {window}), "
                f"got {self.block_tokens}"
            )


def check_abilities(config: RunConfig) -> None:
    """Refuses a configuration for which the cell has no kernel.

    Raises:
        ConfigError: the cell lacks a kernel; the message names the key.
    """
    options, strategy = options_of(config), config.strategy
    wants: tuple[tuple[str, str, str, Callable[[Cell], bool]], ...] = (
        ("perturb", strategy.perturb, "weights", lambda cell: cell.has_activation_noise),
        ("head", strategy.head, "perturbed", lambda cell: cell.has_activation_noise),
        ("precision", options.precision, "float32", lambda cell: cell.has_int8),
    )
    for key, value, expected, has_kernel in wants:
        if value not in (expected, "auto") and not has_kernel(CELLS[options.cell]):
            others = " or ".join(name for name, cell in CELLS.items() if has_kernel(cell))
            raise ConfigError(
                f"{key}: expected {expected} with cell = {options.cell}, got {value}; take cell = {others}"
            )


def wants_weights(config: RunConfig) -> str:
    """The first setting that goes with noise on weights alone, with its value; empty where there is none."""
    strategy, cell = config.strategy, options_of(config).cell
    ties = (
        ("cell", cell, not CELLS[cell].has_activation_noise),
        ("antithetic", strategy.antithetic, strategy.antithetic),
        ("rank", strategy.rank, strategy.rank != 1),
        ("fitness_shaping", strategy.fitness_shaping, strategy.fitness_shaping != "normalized"),
        ("exchange", strategy.exchange, strategy.exchange != "replay"),
    )
    return next((f"{key} = {str(value).lower()}" for key, value, is_tied in ties if is_tied), "")


def options_of(config: RunConfig) -> RnnOptions:
    """The settings of a run that trains a recurrent network."""
    assert isinstance(config.options, RnnOptions), f"expected RnnOptions, got {type(config.options).__name__}"
    return config.options

"""The windows of text that peers read: cut as the product cuts them, on the same network."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.text.rnn_run import RnnRun
from fedlearn.text.windows import WindowShape, cut_windows


class SameWindows(msgspec.Struct, frozen=True):
    """Windows of a step."""

    context: NDArray[np.int64]
    """[windows, context] tokens that only warm up the state."""
    tokens: NDArray[np.int64]
    """[windows, T + 1] tokens to read and to predict."""
    is_cold: NDArray[np.bool_]
    """[windows] whether the state before `tokens` is the initial state: 1 in 16, which trains it."""


def same_windows(run: RnnRun, *, step: int, n_windows: int) -> SameWindows:
    """The windows of the first groups of a step."""
    context = run.options.context
    shape = WindowShape(1, context, run.options.sequence_length)
    windows = cut_windows(
        run.dataset.train.tokens, shape, seed=run.config.run.seed, step=step, first_group=0, n_groups=n_windows
    )
    tokens = windows.tokens[:, 0].astype(np.int64)
    return SameWindows(tokens[:, :context], tokens[:, context:], windows.is_cold.astype(np.bool_))


def check_one_layer(run: RnnRun) -> None:
    """Accepts a network that the peers have.

    Raises:
        ValueError: the network has several layers.
    """
    if run.options.n_layers != 1:
        raise ValueError(f"n_layers: the peers have 1, got {run.options.n_layers}; leave it out")

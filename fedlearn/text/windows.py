"""Which tokens a group is evaluated on: a pure function of seed, step, group and token block."""

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.text.tokens import StoredTokens, TokenArray

COLD_GROUP_INTERVAL = 16
"""Every 16th group starts without context: its members train the initial state, which context would wash out."""


class WindowShape(msgspec.Struct, frozen=True):
    """A window is `context` tokens to warm up, then `scored` tokens to predict, then the last target."""

    batch_size: int
    """Windows, hence sequences, a group."""
    context: int
    scored: int

    @property
    def n_tokens(self) -> int:
        return self.context + self.scored + 1


class Windows(msgspec.Struct, frozen=True, eq=False):
    """The text of consecutive groups."""

    tokens: TokenArray
    """[groups, batch_size, context + scored + 1]"""
    is_cold: NDArray[np.uint8]
    """[groups] 1: the group starts at the initial state and skips the context."""


def cut_windows(
    block: StoredTokens, shape: WindowShape, *, seed: int, step: int, first_group: int, n_groups: int
) -> Windows:
    """The windows of groups `first_group` to `first_group + n_groups`.

    Sequence s of a group begins at `word[s] * positions >> 32`, with the group's stream of random words and
    `positions` places where a window fits.

    Raises:
        ValueError: the block is shorter than a window.
    """
    n_positions = len(block) - shape.n_tokens + 1
    if n_positions < 1:
        raise ValueError(
            f"token block: expected at least {shape.n_tokens} tokens, a window of context and sequence_length, "
            f"got {len(block)}; shorten context or add text"
        )
    words = es_core.random_words(seed, step, first_group, n_groups, shape.batch_size)
    starts = (words.astype(np.uint64) * np.uint64(n_positions)) >> np.uint64(32)
    groups = np.arange(first_group, first_group + n_groups)
    is_cold = groups % COLD_GROUP_INTERVAL == 0 if shape.context else np.ones(n_groups, dtype=bool)
    places = starts.astype(np.int64)[:, :, np.newaxis] + np.arange(shape.n_tokens)
    return Windows(tokens=block[places].astype(np.uint16), is_cold=is_cold.astype(np.uint8))

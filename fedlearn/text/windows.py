"""The tokens that a group is evaluated on, as a pure function of seed, step, group and token block."""

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.text.tokens import StoredTokens, TokenArray

COLD_GROUP_INTERVAL = 16
"""One group in this many is cold: it starts without context, so that its members train the initial state."""


class WindowShape(msgspec.Struct, frozen=True):
    """A window has `context` tokens to warm up, then `scored` tokens to predict from, then the last target."""

    batch_size: int
    """Number of windows, and thus of sequences, of each group."""
    context: int
    scored: int

    @property
    def n_tokens(self) -> int:
        return self.context + self.scored + 1


class TokenWindows(msgspec.Struct, frozen=True, eq=False):
    """The tokens that consecutive groups read."""

    tokens: TokenArray
    """The tokens [groups, batch_size, context + scored + 1]."""
    is_cold: NDArray[np.uint8]
    """The mask [groups], 1 for each cold group, which starts at the initial state and skips the context."""


def cut_windows(
    block: StoredTokens, shape: WindowShape, *, seed: int, step: int, first_group: int, n_groups: int
) -> TokenWindows:
    """The windows of the `n_groups` groups from `first_group` on.

    Sequence s of a group begins at `word[s] * positions >> 32`: `word` are the group's random words, and `positions` is
    the number of places at which a window fits.

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
    return TokenWindows(tokens=block[places].astype(np.uint16), is_cold=is_cold.astype(np.uint8))

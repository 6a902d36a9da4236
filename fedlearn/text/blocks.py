"""Token blocks: the pieces in which text is sent to volunteers."""

from itertools import pairwise

from fedlearn.text.tokens import StoredTokens


def cut_blocks(tokens: StoredTokens, block_tokens: int) -> list[tuple[int, int]]:
    """The (start, length) of consecutive blocks that cover `tokens`, none shorter than `block_tokens`.

    Tokens left over are spread evenly over all blocks. There is one block if there are too few tokens for two, or if
    `block_tokens` is 0.

    Raises:
        ValueError: `block_tokens` is negative.
    """
    if block_tokens < 0:
        raise ValueError(f"block_tokens: expected 0 (one block) or more, got {block_tokens}")
    n_blocks = max(1, len(tokens) // block_tokens) if block_tokens else 1
    starts = [index * len(tokens) // n_blocks for index in range(n_blocks + 1)]
    return [(start, end - start) for start, end in pairwise(starts)]

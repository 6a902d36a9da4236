import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.blocks import cut_blocks


@given(n_tokens=st.integers(0, 1000), block_tokens=st.integers(1, 300))
def test_blocks_cover_the_tokens_and_none_is_short(n_tokens: int, block_tokens: int) -> None:
    blocks = cut_blocks(np.zeros(n_tokens, dtype=np.uint16), block_tokens)
    starts, lengths = zip(*blocks, strict=True)
    assert starts == (0, *np.cumsum(lengths)[:-1])
    assert sum(lengths) == n_tokens
    assert max(lengths) - min(lengths) <= 1
    assert len(blocks) == max(1, n_tokens // block_tokens)
    assert len(blocks) == 1 or min(lengths) >= block_tokens


def test_zero_gives_one_block() -> None:
    assert cut_blocks(np.zeros(7, dtype=np.uint16), 0) == [(0, 7)]


def test_negative_block_size_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        cut_blocks(np.zeros(7, dtype=np.uint16), -1)

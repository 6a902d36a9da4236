import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.blocks import block_id, cut_blocks


def test_block_id_is_pinned() -> None:
    tokens = np.array([0, 1, 258, 65_534], dtype=np.uint16)
    assert block_id(tokens).hex() == "c0f3a57faddd6abec541ed673f7cfc45"


def test_block_id_does_not_depend_on_byte_order_or_layout() -> None:
    tokens = np.arange(20, dtype=np.uint16)
    assert block_id(tokens.astype(">u2")) == block_id(tokens)
    assert block_id(np.repeat(tokens, 2)[::2]) == block_id(tokens)


def test_other_tokens_have_another_id() -> None:
    assert block_id(np.array([1], dtype=np.uint16)) != block_id(np.array([2], dtype=np.uint16))


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

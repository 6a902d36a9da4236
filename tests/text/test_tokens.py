import numpy as np
import pytest

from fedlearn.text.tokens import as_tokens


def test_tokens_become_uint16() -> None:
    assert as_tokens([0, 2, 1], vocab_size=3).dtype == np.uint16
    assert as_tokens([], vocab_size=3).tolist() == []


@pytest.mark.parametrize("token", [-1, 3, 65_537])
def test_token_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match=f"expected 0 to 2, got {token}"):
        as_tokens([0, token], vocab_size=3)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.repetition import forbid_repeats, penalise_repeats

LOGS = np.log(np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], dtype=np.float32))


def plain_left(text: list[int], vocab_size: int, n: int) -> set[int]:
    """Tokens that may follow, by what it says."""
    seen = {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}
    return {token for token in range(vocab_size) if (*text[len(text) - n + 1 :], token) not in seen}


@given(
    st.integers(0, 12).flatmap(
        lambda length: st.lists(st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=1, max_size=4)
    ),
    st.integers(1, 5),
)
def test_what_would_come_twice_is_left_out(texts: list[list[int]], n: int) -> None:
    logs = np.log(np.full((len(texts), 4), 0.25, dtype=np.float32))
    found = forbid_repeats(logs, np.array(texts, dtype=np.uint16).reshape(len(texts), -1), n)
    for row, text in zip(found, texts, strict=True):
        left = plain_left(text, 4, n) or set(range(4))
        assert set(np.flatnonzero(np.isfinite(row)).tolist()) == left
    assert (logs == logs[0, 0]).all()


def test_zero_forbids_nothing() -> None:
    assert forbid_repeats(LOGS, np.zeros((2, 9), dtype=np.uint16), 0) is LOGS


def test_tokens_of_the_text_are_less_likely_by_the_penalty() -> None:
    penalised = penalise_repeats(LOGS[0], np.array([1, 1], dtype=np.uint16), 2.0)
    np.testing.assert_allclose(np.exp(penalised), [0.5, 0.09, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(penalise_repeats(LOGS[0], np.array([1], dtype=np.uint16), 1.0), LOGS[0])


def test_impossible_tokens_stay_impossible() -> None:
    logs = np.array([-np.inf, 0.0], dtype=np.float32)
    assert penalise_repeats(logs, np.array([0, 1], dtype=np.uint16), 1.5).tolist() == [-np.inf, 0.0]


@pytest.mark.parametrize("n", [1, 2])
def test_text_that_nothing_else_could_follow_keeps_what_it_has(n: int) -> None:
    logs = np.array([[0.0, -np.inf]], dtype=np.float32)
    np.testing.assert_array_equal(forbid_repeats(logs, np.zeros((1, 3), dtype=np.uint16), n), logs)

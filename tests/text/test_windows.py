import numpy as np
import pytest

from fedlearn.text.windows import COLD_GROUP_INTERVAL, TokenWindows, WindowShape, cut_windows

BLOCK = np.arange(1000, dtype=np.uint16)


def cut(
    shape: WindowShape, *, n_tokens: int = 1000, step: int = 4, first_group: int = 0, n_groups: int = 3
) -> TokenWindows:
    return cut_windows(BLOCK[:n_tokens], shape, seed=2**63 + 5, step=step, first_group=first_group, n_groups=n_groups)


def test_windows_have_the_known_places() -> None:
    windows = cut(WindowShape(batch_size=2, context=5, scored=10))
    assert windows.tokens.shape == (3, 2, 16)
    assert windows.tokens.dtype == np.uint16
    assert windows.tokens[:, :, 0].tolist() == [[222, 484], [599, 241], [700, 307]]
    late = cut(WindowShape(batch_size=1, context=5, scored=10), step=2**32 - 1, first_group=2**31)
    assert late.tokens[:, 0, 0].tolist() == [206, 619, 850]


def test_a_window_is_one_piece_of_the_block() -> None:
    tokens = cut(WindowShape(batch_size=3, context=4, scored=6), n_groups=20).tokens.astype(int)
    assert (np.diff(tokens, axis=2) == 1).all()


def test_every_place_is_as_likely_as_any_other() -> None:
    shape = WindowShape(batch_size=2, context=1, scored=2)
    starts = cut(shape, n_tokens=shape.n_tokens + 6, n_groups=7000).tokens[:, :, 0]
    counts = np.bincount(starts.reshape(-1), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 2000).max() < 5 * 2000**0.5


def test_steps_groups_and_sequences_have_places_of_their_own() -> None:
    shape = WindowShape(batch_size=4, context=0, scored=1)
    starts = np.stack([cut(shape, step=step, n_groups=4).tokens[:, :, 0] for step in range(4)])
    assert len(np.unique(starts)) > 50  # of 64


def test_a_group_has_the_same_window_whoever_asks_for_it() -> None:
    shape = WindowShape(batch_size=2, context=3, scored=4)
    many, few = cut(shape, n_groups=40), cut(shape, first_group=14, n_groups=5)
    np.testing.assert_array_equal(few.tokens, many.tokens[14:19])
    np.testing.assert_array_equal(few.is_cold, many.is_cold[14:19])


def test_every_sixteenth_group_is_cold() -> None:
    windows = cut(WindowShape(batch_size=1, context=3, scored=4), first_group=10, n_groups=40)
    assert np.flatnonzero(windows.is_cold).tolist() == [6, 22, 38]
    assert COLD_GROUP_INTERVAL == 16
    assert windows.is_cold.dtype == np.uint8


def test_without_context_every_group_is_cold() -> None:
    assert cut(WindowShape(batch_size=1, context=0, scored=4), n_groups=20).is_cold.all()


def test_a_block_of_one_window_has_one_place() -> None:
    shape = WindowShape(batch_size=1, context=3, scored=4)
    np.testing.assert_array_equal(cut(shape, n_tokens=8).tokens, np.tile(BLOCK[:8], (3, 1, 1)))


def test_a_block_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"token block: expected at least 8 tokens, .* got 7; shorten context"):
        cut(WindowShape(batch_size=1, context=3, scored=4), n_tokens=7)


def test_no_groups_have_no_windows() -> None:
    windows = cut(WindowShape(batch_size=1, context=3, scored=4), n_groups=0)
    assert windows.tokens.shape == (0, 1, 8)

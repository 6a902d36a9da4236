import numpy as np
import pytest

import es_core
from fedlearn.tasks.passes import STREAM, Passes


@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_each_pass_sees_every_row_once(n_rows: int) -> None:
    rows = Passes(5).rows(0, 3 * n_rows, n_rows=n_rows).reshape(3, n_rows)
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.broadcast_to(np.arange(n_rows), (3, n_rows)))


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    first, second = Passes(5).rows(0, 40, n_rows=20).reshape(2, 20)
    assert first.tolist() != second.tolist()
    assert first.tolist() != Passes(6).rows(0, 20, n_rows=20).tolist()
    assert first.tolist() != np.arange(20).tolist()


def test_rows_are_the_same_in_any_pieces_and_for_any_other_data_between() -> None:
    whole = Passes(5).rows(3, 50, n_rows=20)
    passes = Passes(5)
    pieces = []
    for first, count in ((40, 13), (3, 30), (33, 7)):
        pieces.append((first, passes.rows(first, count, n_rows=20)))
        assert len(passes.rows(first, 10, n_rows=9)) == 10
    assert np.concatenate([rows for _, rows in sorted(pieces, key=lambda piece: piece[0])]).tolist() == whole.tolist()


def test_the_order_is_that_of_random_words_where_equal_ones_stay_in_order() -> None:
    words = es_core.random_words(9, 2, STREAM, 1, 6)[0]
    assert Passes(9).rows(12, 6, n_rows=6).tolist() == sorted(range(6), key=lambda row: words[row])
    assert Passes(9).rows(12, 6, n_rows=6).tolist() == KNOWN


def test_rows_of_equal_words_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.tile(np.array([3, 1], dtype=np.uint32), 500)
    monkeypatch.setattr(es_core, "random_words", lambda *_: words[None])
    assert Passes(1).rows(0, 1000, n_rows=1000).tolist() == [*range(1, 1000, 2), *range(0, 1000, 2)]


def test_passes_beyond_32_bits_begin_anew() -> None:
    later = Passes(9).rows(6 * (2**32 + 2), 6, n_rows=6)
    assert later.tolist() == Passes(9).rows(12, 6, n_rows=6).tolist()


KNOWN = [3, 0, 2, 4, 5, 1]
"""Known answer of docs/design/arithmetic.md."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.board import curve as module
from fedlearn.board.curve import AXES, DRAWN, BucketedCurve, Rows, columns, rows_of


def steps(first: int, end: int, values: NDArray[np.float64] | None = None) -> Rows:
    numbers = np.arange(first, end, dtype=np.float64)
    axes = np.column_stack([numbers, numbers / 2, numbers * 100])
    figures = np.repeat((numbers if values is None else values)[:, np.newaxis], len(DRAWN), axis=1)
    return rows_of(axes, figures)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> BucketedCurve:
    monkeypatch.setattr(module, "CAPACITY", 8)
    return BucketedCurve()


def test_few_steps_are_shown_as_they_are(small: BucketedCurve) -> None:
    small.add(steps(0, 5))
    found = columns(small.rows)
    assert found["axes"] == {"step": [0, 1, 2, 3, 4], "seconds": [0, 0.5, 1, 1.5, 2], "work": [0, 100, 200, 300, 400]}
    for part in ("mean", "least", "greatest"):
        assert found[part]["loss"] == [0, 1, 2, 3, 4]
    assert (small.n_whole, small.epoch) == (5, 0)


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_many_steps_share_buckets_that_have_their_mean_and_bounds(small: BucketedCurve, piece: int) -> None:
    for first in range(0, 100, piece):
        small.add(steps(first, min(first + piece, 100)))
    rows = small.rows
    assert rows[:, 0].tolist() == [16] * 6 + [4]
    assert rows[:, 1].tolist() == [15, 31, 47, 63, 79, 95, 99]
    found = columns(rows)
    assert found["mean"]["shown"] == [7.5, 23.5, 39.5, 55.5, 71.5, 87.5, 97.5]
    assert found["least"]["shown"] == [0, 16, 32, 48, 64, 80, 96]
    assert found["greatest"]["shown"] == [15, 31, 47, 63, 79, 95, 99]
    assert found["axes"]["work"][-1] == 9900


def test_curve_is_bounded_and_what_is_whole_stays_within_an_epoch(small: BucketedCurve) -> None:
    before: tuple[int, Rows] = (0, small.rows)
    for first in range(1000):
        small.add(steps(first, first + 1))
        assert len(small.rows) <= 8
        epoch, rows = before
        if small.epoch == epoch:
            assert np.array_equal(small.rows[: len(rows)], rows)
        before = small.epoch, small.rows[: small.n_whole]
    assert before[0] == 7


def test_steps_without_a_number_count_for_nothing(small: BucketedCurve) -> None:
    values = np.array([np.nan, 4.0] * 4 + [np.nan] * 4)
    small.add(steps(0, 12, values))
    found = columns(small.rows)
    assert found["mean"]["loss"][:4] == found["least"]["loss"][:4] == found["greatest"]["loss"][:4] == [4.0] * 4
    assert np.isnan(found["mean"]["loss"][4:]).all()


def test_steps_that_were_taken_back_are_forgotten(small: BucketedCurve) -> None:
    small.add(steps(0, 20))
    epoch = small.epoch
    small.cut(10)
    assert (small.last["step"], small.epoch) == (7, epoch + 1)
    small.add(steps(10, 12))
    assert small.last == dict(zip(AXES, (11, 5.5, 1100), strict=True))


def test_nothing_has_no_last_step() -> None:
    assert BucketedCurve().last == {"step": -1, "seconds": 0, "work": 0}
    assert columns(BucketedCurve().rows)["axes"]["step"] == []

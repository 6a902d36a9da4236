import numpy as np
import pytest

from fedlearn.es.sums.moments import (
    LEAST_FACTOR,
    MOST_DEVIATIONS,
    MOST_OBSERVATIONS,
    UNIT,
    Int64Array,
    complaint_of,
    counted,
    moments_bytes,
    renormalization_of,
    width,
)

GENERATOR = np.random.default_rng(0)
MOST = MOST_DEVIATIONS * UNIT


def row(deviations: np.ndarray) -> Int64Array:
    """The moments of a group that observed these deviations, [observations, numbers]."""
    units = counted(deviations)
    return np.concatenate([[len(units)], units.sum(axis=0), (units**2).sum(axis=0)])


def test_numbers_are_counted_in_whole_units_and_clipped() -> None:
    assert counted(np.array([0.0, 1.0, -0.5, 1e9, -1e9])).tolist() == [0, UNIT, -UNIT // 2, MOST, -MOST]
    assert counted(np.array([np.nan, np.inf, -np.inf])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("weight", [0.0, 300.0])
def test_a_renormalization_gives_the_mean_and_deviation_of_everything_so_far(weight: int) -> None:
    before = GENERATOR.normal(size=(int(weight), 2))
    if weight:
        before = (before - before.mean(axis=0)) / before.std(axis=0)
    groups = [GENERATOR.normal((0.5, -2.0), (2.0, 1.5), (n, 2)) for n in (40, 100, 60)]
    everything = np.concatenate([before, *groups])
    renormalization = renormalization_of(np.stack([row(group) for group in groups]), weight)
    np.testing.assert_allclose(renormalization.moves, everything.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(renormalization.factors, everything.std(axis=0), rtol=0.005)
    assert renormalization.weight == weight + 200
    assert renormalization.moves.dtype == renormalization.factors.dtype == np.float32


def test_a_false_count_weighs_little() -> None:
    honest = [row(GENERATOR.normal(size=(50, 1))) for _ in range(4)]
    false = np.array([10**9, 10**9 * MOST, 10**9 * MOST**2])
    renormalization = renormalization_of(np.stack([*honest, false]), 0.0)
    assert renormalization.weight == 400  # the false group counts for four of the others
    assert renormalization.moves[0] == pytest.approx(200 / 400 * MOST_DEVIATIONS, rel=0.02)


def test_of_two_groups_the_one_that_observed_less_is_believed() -> None:
    rows = np.array([[2**36, 0, 0], [50, 50 * UNIT, 50 * UNIT**2]])
    for order in ((0, 1), (1, 0)):
        assert renormalization_of(rows[list(order)], 0.0).weight == 250


def test_a_deviation_never_vanishes() -> None:
    assert renormalization_of(np.array([[1000, 0, 0]]), 0.0).factors.tolist() == [LEAST_FACTOR]


def test_without_observations_nothing_changes() -> None:
    found = renormalization_of(np.zeros((3, 5), dtype=np.int64), 70.0)
    assert (found.moves.tolist(), found.factors.tolist(), found.weight) == ([0.0, 0.0], [1.0, 1.0], 70.0)


def test_honest_moments_are_believed() -> None:
    groups = [GENERATOR.normal(0.0, 20.0, (n, 3)) for n in (1, 7, 100)]
    same = np.full((9, 3), 17.0)  # all alike, where the square of the sum is as large as can be
    rows = [row(group) for group in (*groups, same)]
    assert complaint_of(np.concatenate(rows), n_groups=4, n_numbers=3) == ""
    assert complaint_of(np.zeros(7, dtype=np.int64), n_groups=1, n_numbers=3) == ""
    assert complaint_of(np.zeros(0, dtype=np.int64), n_groups=4, n_numbers=0) == ""


@pytest.mark.parametrize(
    ("moments", "told"),
    [
        ([-1, 0, 0], "counts from 0"),
        ([MOST_OBSERVATIONS + 1, 0, 0], "counts from 0"),
        ([2, 2 * MOST + 1, 2 * MOST**2], "sums up to"),
        ([2, -2 * MOST - 1, 2 * MOST**2], "sums up to"),
        ([2, -(2**63), 0], "sums up to"),
        ([2, 0, -1], "squares from 0 up to"),
        ([2, 0, 2 * MOST**2 + 1], "squares from 0 up to"),
        ([0, 0, 1], "squares from 0 up to"),
        ([2, 2 * UNIT, UNIT**2], "squares of the sums"),
        ([1, 0], "expected 3 for each of 1 groups, got 2"),
        ([1, 0, 0, 0], "expected 3 for each of 1 groups, got 4"),
        ([], "expected 3 for each of 1 groups, got 0"),
    ],
)
def test_moments_that_no_members_can_have_are_named(moments: list[int], told: str) -> None:
    assert told in complaint_of(np.array(moments, dtype=np.int64), n_groups=1, n_numbers=1)


def test_moments_are_refused_where_none_are_wanted() -> None:
    assert "expected 0 for each" in complaint_of(np.zeros(3, dtype=np.int64), n_groups=1, n_numbers=0)


def test_a_group_takes_as_many_bytes_as_its_moments() -> None:
    assert moments_bytes(5) == row(np.zeros((1, 5))).nbytes == 8 * width(5)
    assert moments_bytes(0) == 0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.es.shaping import MAX_LOSS, SHAPINGS, UTILITY_RESOLUTION, Shaping, bounded, n_counted, spread_of
from fedlearn.es.sums.estimate import MAX_UTILITY

METHODS: list[str] = list(SHAPINGS)
BY_LOSS_ALONE = [method for method in METHODS if method != "best-directions"]
"""The rules that do not ask which members are a pair."""


def losses_of(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def test_normalized_utilities_measure_losses_in_scales_below_the_mean() -> None:
    losses = losses_of(1.0, 3.0, 2.0, 2.0)
    assert SHAPINGS["normalized"](losses, 4, 1.0).tolist() == [UTILITY_RESOLUTION, -UTILITY_RESOLUTION, 0, 0]
    assert SHAPINGS["normalized"](losses, 4, 2.0).tolist() == [16, -16, 0, 0]


def test_normalized_utilities_are_clipped() -> None:
    assert SHAPINGS["normalized"](losses_of(0.0, 100.0), 2, 1.0).tolist() == [MAX_UTILITY, -MAX_UTILITY]


def test_centered_ranks_depend_on_the_order_alone() -> None:
    ranked = SHAPINGS["centered-ranks"](losses_of(4.0, 1.0, 3.0, 2.0), 4, 1.0)
    assert ranked.tolist() == [-42, 42, -14, 14]
    assert SHAPINGS["centered-ranks"](losses_of(9.0, -50.0, 8.5, 0.0), 4, 7.0).tolist() == ranked.tolist()


def test_equal_losses_share_the_mean_of_their_ranks() -> None:
    ranked = SHAPINGS["centered-ranks"](losses_of(1.0, 1.0, 1.0, 0.0, 2.0, 5.0, 2.0, 1.0), 4, 1.0)
    assert ranked.tolist() == [-14, -14, -14, 42, 0, -42, 0, 42]


def test_centered_ranks_spread_like_normalized_utilities() -> None:
    losses = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    assert SHAPINGS["centered-ranks"](losses, 64, 1.0).std() == pytest.approx(UTILITY_RESOLUTION, rel=0.02)


def test_of_the_best_directions_alone_something_is_learned() -> None:
    best = SHAPINGS["best-directions"]
    losses = losses_of(4.0, 5.0, 9.0, 1.0, 7.0, 3.0, 6.0, 8.0)  # the best of each pair: 4, 1, 3, 6
    ranked = SHAPINGS["centered-ranks"](losses, 8, 1.0)
    assert best(losses, 8, 7.0).tolist() == [0, 0, *ranked[2:6].tolist(), 0, 0]
    assert best(losses[:6], 6, 1.0).tolist() == [0, 0, *SHAPINGS["centered-ranks"](losses[:6], 6, 1.0)[2:].tolist()]
    assert best(losses[:4], 2, 1.0).tolist() == SHAPINGS["centered-ranks"](losses[:4], 2, 1.0).tolist()
    assert best(losses, 4, 1.0).tolist() == [0, 0, -42, 42, -14, 42, 0, 0]


def test_directions_are_pairs() -> None:
    with pytest.raises(ValueError, match="group_size: expected an even number with antithetic pairs, got 3"):
        SHAPINGS["best-directions"](losses_of(1.0, 2.0, 3.0), 3, 1.0)


def test_sign_tells_the_better_half_from_the_worse() -> None:
    assert SHAPINGS["sign"](losses_of(1.0, 9.0, 2.0, 3.0), 4, 1.0).tolist() == [32, -32, 32, -32]
    assert SHAPINGS["sign"](losses_of(1.0, 2.0, 3.0), 3, 1.0).tolist() == [32, 0, -32]


@pytest.mark.parametrize("method", METHODS)
def test_a_group_of_equal_losses_has_no_utility(method: str) -> None:
    assert SHAPINGS[method](losses_of(2.0, 2.0, 2.0, 2.0), 4, 1.0).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_group_with_a_broken_loss_counts_zero_and_spares_the_others(method: str, poison: float) -> None:
    healthy = [1.0, 2.0, 4.0, 5.0]
    utilities = SHAPINGS[method](losses_of(1.0, poison, 3.0, 4.0, *healthy), 4, 1.0)
    assert utilities[:4].tolist() == [0, 0, 0, 0]
    assert utilities[4:].tolist() == SHAPINGS[method](losses_of(*healthy), 4, 1.0).tolist()
    assert utilities[4] > 0


@pytest.mark.parametrize("method", METHODS)
def test_nobody_has_no_utilities(method: str) -> None:
    assert SHAPINGS[method](losses_of(), 4, 1.0).shape == (0,)


@given(
    st.sampled_from(BY_LOSS_ALONE),
    st.integers(2, 9).flatmap(
        lambda n: st.lists(st.lists(st.floats(0, 20, width=32), min_size=n, max_size=n), min_size=1, max_size=4)
    ),
)
def test_lower_losses_never_have_lower_utilities(method: str, groups: list[list[float]]) -> None:
    group_size = len(groups[0])
    utilities = SHAPINGS[method](losses_of(*np.ravel(groups)), group_size, 0.5)
    assert utilities.dtype == np.int8
    assert np.abs(utilities.astype(int)).max() <= MAX_UTILITY
    for group, shaped in zip(groups, utilities.reshape(-1, group_size), strict=True):
        order = np.argsort(np.array(group), kind="stable")
        better, worse = order[:-1], order[1:]
        is_lower = np.array(group)[better] < np.array(group)[worse]
        assert (shaped[better] >= shaped[worse])[is_lower].all()


def test_spread_is_the_median_of_the_groups_standard_deviations() -> None:
    losses = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32) * 0.3
    losses += np.arange(50, dtype=np.float32)[:, np.newaxis]
    expected = np.median(losses.astype(np.float64).std(axis=1, ddof=1))
    assert spread_of(losses.reshape(-1), 6) == pytest.approx(expected)


def test_a_few_groups_of_false_losses_hardly_move_the_spread() -> None:
    losses = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    honest = spread_of(losses.reshape(-1), 6)
    losses[:5] = [0.0, 3e38, 0.0, 3e38, 0.0, 3e38]
    assert spread_of(losses.reshape(-1), 6) == pytest.approx(honest, rel=0.2)


def test_losses_beyond_the_bound_of_either_sign_count_as_infinite() -> None:
    losses = losses_of(-MAX_LOSS, MAX_LOSS, -1.5, 1.1 * MAX_LOSS, -1.1 * MAX_LOSS, np.nan, -np.inf, np.inf)
    assert bounded(losses).tolist() == [*losses[:3].tolist(), *[np.inf] * 5]
    assert bounded(losses).dtype == np.float32


@pytest.mark.parametrize("method", METHODS)
def test_losses_may_be_negative(method: str) -> None:
    below, above = losses_of(-3.0, -1.0, -2.0, -2.5), losses_of(7.0, 9.0, 8.0, 7.5)
    assert SHAPINGS[method](below, 4, 1.0).tolist() == SHAPINGS[method](above, 4, 1.0).tolist()
    assert spread_of(below, 4) == spread_of(above, 4)


def test_members_of_broken_groups_are_not_counted() -> None:
    assert n_counted(losses_of(1.0, 2.0, np.nan, 2.0, 1.0, np.inf, 3.0, 4.0), 2) == 4


def test_spread_leaves_broken_groups_out_and_is_zero_without_whole_ones() -> None:
    assert spread_of(losses_of(1.0, 3.0, np.nan, 5.0), 2) == pytest.approx(2**0.5)
    assert spread_of(losses_of(np.inf, 3.0), 2) == 0.0
    assert spread_of(losses_of(), 2) == 0.0
    assert spread_of(losses_of(1.0, 2.0), 1) == 0.0


@pytest.mark.parametrize("n_groups", [1, 2, 5, 64, 1001, 3000])
def test_spread_is_to_the_bit_what_numpy_makes_of_the_groups(n_groups: int) -> None:
    groups = np.random.default_rng(n_groups).standard_normal((n_groups, 4)).astype(np.float32)
    deviations = groups.astype(np.float64).std(axis=1, ddof=1)
    assert spread_of(groups.reshape(-1), 4) == float(np.median(deviations))


def test_members_may_be_compared_with_those_of_all_groups() -> None:
    losses, shaping = losses_of(1.0, 2.0, 3.0, 4.0), Shaping("centered-ranks", 1.0)
    assert shaping.utilities(losses, 2).tolist() == [28, -28, 28, -28]
    of_all = shaping.utilities_of_all(losses, 2)
    assert of_all.tolist() == shaping.utilities(losses, 4).tolist() == [42, 14, -14, -42]
    assert of_all.dtype == np.int8


def test_among_all_a_broken_loss_is_the_worst_and_a_group_of_such_says_nothing() -> None:
    shaping = Shaping("centered-ranks", 1.0)
    broken = losses_of(np.nan, np.inf, 1.0, np.nan, 3.0, 2.0, 5e12, -np.inf)
    expected = shaping.utilities(losses_of(1.0, 3.0, 3.0, 2.0), 4).tolist()
    assert shaping.utilities_of_all(broken, 2).tolist() == [0, 0, *expected, 0, 0]
    assert shaping.utilities_of_all(broken[:2], 2).tolist() == [0, 0]
    assert shaping.utilities_of_all(broken[:0], 2).tolist() == []

import numpy as np
import pytest

from fedlearn.coordination.steps.middle import group_means, middle_mean


def test_false_groups_up_to_a_quarter_do_not_show() -> None:
    losses = np.full((8, 4), 3.0, np.float32)
    losses[:, 0] = 2.0
    for false in (-1e6, 1e6):
        attacked = losses.copy()
        attacked[:2] = false
        assert middle_mean(group_means(attacked.reshape(-1), 4)) == 2.75


@pytest.mark.parametrize(
    ("means", "middle"),
    [([5.0], 5.0), ([5.0, 7.0], 6.0), ([5.0, 1e6, 7.0], 7.0), ([1e6, 2.0, 4.0, -1e6], 3.0), ([1.0, 2, 3, 4, 5e5], 3.0)],
)
def test_of_three_groups_or_more_the_outermost_are_left_out(means: list[float], middle: float) -> None:
    assert middle_mean(means) == middle


def test_half_of_many_groups_counts() -> None:
    means = np.random.default_rng(0).permutation(np.arange(16.0) ** 2)
    assert middle_mean(means) == np.mean(np.arange(4.0, 12.0) ** 2)


def test_losses_that_are_no_numbers_are_left_out_and_groups_of_them() -> None:
    losses = np.array([1.0, np.inf, 3.0, 3.0, np.nan, np.inf], np.float32)
    assert group_means(losses, 2).tolist() == [1.0, 3.0]
    assert middle_mean(group_means(losses[4:], 2)) is None

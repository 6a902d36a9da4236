import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.clipping import MEMORY, MOST, Clipping, Int64Array

SIZE = 400
GENERATOR = np.random.default_rng(0)


def noise(n_groups: int, scale: float = 1000.0) -> tuple[Int64Array, int]:
    """A sum over groups that is mostly noise."""
    return np.rint(GENERATOR.normal(0, scale * n_groups**0.5, SIZE)).astype(np.int64), n_groups


def test_sums_that_are_alike_add_up_exactly() -> None:
    clipping = Clipping()
    for _ in range(10):
        sums = [noise(1), noise(16), noise(100)]
        np.testing.assert_array_equal(clipping.total(sums, SIZE), sum(numbers for numbers, _ in sums))
    assert clipping.n_clipped == 0


def test_no_sums_are_zeros() -> None:
    assert not Clipping().total([], SIZE).any()
    assert not Clipping().total([(np.zeros(SIZE, dtype=np.int64), 4)], SIZE).any()


@pytest.mark.parametrize("past", [0, 5])
def test_maximal_sum_weighs_no_more_than_a_few_others(past: int) -> None:
    clipping = Clipping()
    for _ in range(past):
        clipping.total([noise(4) for _ in range(4)], SIZE)
    honest = [noise(4) for _ in range(4)]
    false = np.full(SIZE, 127 << 24, dtype=np.int64)
    total = clipping.total([*honest, (false, 4)], SIZE)
    extra = total - sum(numbers for numbers, _ in honest)
    usual = float(np.linalg.norm(honest[0][0]))
    assert np.linalg.norm(extra) < 1.2 * MOST * usual
    assert clipping.n_clipped >= 1


def test_lone_liar_is_held_to_what_was_usual() -> None:
    clipping = Clipping()
    for _ in range(10):
        clipping.total([noise(4)], SIZE)
    total = clipping.total([(np.full(SIZE, 127 << 24, dtype=np.int64), 4)], SIZE)
    assert np.linalg.norm(total) < 1.2 * MOST * np.linalg.norm(noise(4)[0])


def test_of_two_without_a_past_the_shorter_is_believed() -> None:
    short, n_groups = noise(4)
    total = Clipping().total([(1000 * short, n_groups), (short, n_groups)], SIZE)
    assert np.linalg.norm(total) < 2 * MOST * np.linalg.norm(short)


def test_many_colluding_in_one_step_are_held_by_the_total() -> None:
    clipping = Clipping()
    for _ in range(MEMORY):
        clipping.total([noise(1) for _ in range(10)], SIZE)
    usual = np.linalg.norm(clipping.total([noise(1) for _ in range(10)], SIZE))
    pushed = np.full(SIZE, 3500, dtype=np.int64)  # each within its own limit, all in one direction
    assert np.linalg.norm(clipping.total([(pushed, 1)] * 10, SIZE)) < 1.2 * MOST * usual


def test_what_is_usual_follows_slowly() -> None:
    clipping = Clipping()
    clipping.total([noise(1)], SIZE)
    for _ in range(3 * MEMORY):
        clipping.total([noise(1, 10_000.0)], SIZE)
    n_before = clipping.n_clipped
    clipping.total([noise(1, 10_000.0)], SIZE)
    assert clipping.n_clipped == n_before


def test_one_sum_within_its_limit_is_the_total_and_counts_among_totals() -> None:
    clipping, again = Clipping(), Clipping()
    alone = noise(4)
    np.testing.assert_array_equal(clipping.total([alone], SIZE), alone[0])
    # The same sum in two halves has the same length: the next total is held to the same limit.
    halves = [(alone[0] // 2, 2), (alone[0] - alone[0] // 2, 2)]
    np.testing.assert_array_equal(again.total(halves, SIZE), alone[0])
    pushed = [(np.full(SIZE, 3500, dtype=np.int64), 1)] * 10
    np.testing.assert_allclose(
        np.linalg.norm(clipping.total(pushed, SIZE)), np.linalg.norm(again.total(pushed, SIZE)), rtol=1e-3
    )


def test_lone_sum_is_held_to_what_sums_were_though_totals_were_longer() -> None:
    clipping = Clipping()
    part = noise(1)[0]
    for _ in range(MEMORY):
        clipping.total([(part, 1)] * 16, SIZE)  # all in one direction: four times as long for each root of a group
    total = clipping.total([(8 * part, 1)], SIZE)
    assert np.linalg.norm(total) == pytest.approx(MOST * np.linalg.norm(part), rel=1e-3)


def test_every_number_of_a_long_sum_is_scaled() -> None:
    clipping, size = Clipping(), 2**14 + 5
    usual = np.full(size, 100, dtype=np.int64)
    clipping.total([(usual, 1)], size)
    clipping.total([(usual, 1)], size)
    np.testing.assert_array_equal(clipping.total([(10 * usual, 1)], size), np.full(size, MOST * 100))


def test_sums_of_gradients_are_compared_by_their_mean_and_in_the_unit_of_their_step() -> None:
    clipping, gradient = Clipping(), GENERATOR.normal(0, 1e-3, SIZE)
    for n_groups, unit_bits in ((1, 18), (100, 24), (3, 20), (1000, 22)):
        numbers = np.rint(n_groups * gradient * 2.0**unit_bits).astype(np.int64)
        usual = Perturbation(0.0, 0, "nothing", unit_bits=unit_bits).usual_length
        np.testing.assert_array_equal(clipping.total([(numbers, n_groups)], SIZE, usual), numbers)
    assert clipping.n_clipped == 0
    assert np.abs(clipping.total([(100 * numbers, n_groups)], SIZE, usual)).max() < 5 * np.abs(numbers).max()

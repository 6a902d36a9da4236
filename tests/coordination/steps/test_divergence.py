import numpy as np
import pytest

from fedlearn.coordination.steps.divergence import LOST_STEPS, PATIENCE, DivergenceWatch
from fedlearn.es.layout import Float32Array


def members(loss: float, spread: float = 0.1, n: int = 64) -> Float32Array:
    """Losses around a median, of this standard deviation."""
    signs = np.resize(np.array([-1.0, 1.0]), n)
    signs[:1] = 0.0
    return (loss + spread * signs).astype(np.float32)


def begun(loss: float = 3.0, spread: float = 0.1) -> DivergenceWatch:
    """A watch that has seen the beginning of a run."""
    watch = DivergenceWatch()
    assert watch.took(members(loss, spread)) == ""
    return watch


def said(watch: DivergenceWatch, loss: float, n_steps: int) -> list[str]:
    return [watch.took(members(loss)) for _ in range(n_steps)]


def test_loss_that_stays_far_above_the_beginning_is_told() -> None:
    watch = begun()
    assert said(watch, 2.5, 3) == [""] * 3
    *quiet, last = said(watch, 900.0, PATIENCE)
    assert set(quiet) == {""}
    assert last == (
        "the run diverged: its loss was 3 at the beginning, and 900 now, in 20 steps above 6; "
        "go on from an earlier step with a lower learning_rate"
    )


def test_loss_that_comes_back_in_time_is_not() -> None:
    watch = begun()
    for _ in range(5):
        assert said(watch, 900.0, PATIENCE - 1) == [""] * (PATIENCE - 1)
        assert said(watch, 5.9, 1) == [""]


@pytest.mark.parametrize(("first", "spread", "loss"), [(-0.01, 0.1, 1.9), (0.0, 0.5, 9.9), (-200.0, 5.0, -0.1)])
def test_rewards_that_are_just_bad_are_no_divergence(first: float, spread: float, loss: float) -> None:
    assert set(said(begun(first, spread), loss, 3 * PATIENCE)) == {""}


def test_numbers_that_are_none_are_the_worst() -> None:
    watch = begun()
    nothing = np.full(64, np.inf, dtype=np.float32)
    assert [bool(watch.took(nothing)) for _ in range(PATIENCE)] == [False] * (PATIENCE - 1) + [True]


def test_less_than_half_of_the_members_can_not_end_a_run() -> None:
    watch, losses = begun(), members(3.0)
    losses[:31] = 1e30
    assert {watch.took(losses) for _ in range(2 * PATIENCE)} == {""}
    losses[:31] = np.nan
    assert {watch.took(losses) for _ in range(2 * PATIENCE)} == {""}
    losses[:34] = 1e30
    assert any(watch.took(losses) for _ in range(PATIENCE))


def test_beginning_is_where_members_differ() -> None:
    watch = DivergenceWatch()
    for _ in range(3 * PATIENCE):
        assert watch.took(np.zeros(64, np.float32)) == ""
    assert watch.took(members(1.0, 0.2)) == ""
    assert set(said(watch, 4.9, 2 * PATIENCE)) == {""}
    assert said(watch, 5.1, PATIENCE)[-1]


def test_large_steps_are_judged_by_some_of_their_members() -> None:
    watch = DivergenceWatch()
    watch.took(members(1.0, 0.01, n=100_000))
    assert [watch.took(members(3.0, 0.01, n=100_000)) for _ in range(PATIENCE)][-1]


def test_of_two_middle_losses_the_lower_counts() -> None:
    watch = begun()
    halves = np.array([2.0, 900.0] * 32, dtype=np.float32)
    assert {watch.took(halves) for _ in range(3 * PATIENCE)} == {""}


NOTHING = np.full(64, np.inf, dtype=np.float32)


def test_run_that_begins_without_any_loss_is_given_up_after_a_few_steps() -> None:
    watch = DivergenceWatch()
    assert watch.lost == ""
    assert [watch.took(NOTHING) for _ in range(LOST_STEPS - 1)] == [""] * (LOST_STEPS - 1)
    assert watch.lost == "no loss is finite in the first 2 steps"
    assert watch.took(NOTHING) == watch.lost == "no loss is finite in the first 3 steps"


def test_a_single_loss_is_enough_to_go_on() -> None:
    watch, almost_nothing = DivergenceWatch(), NOTHING.copy()
    almost_nothing[5] = 1.0
    said = [watch.took(losses) for losses in (NOTHING, NOTHING, almost_nothing, *[NOTHING] * LOST_STEPS)]
    assert (set(said), watch.lost) == ({""}, "")

from collections.abc import Iterable

import pytest

from fedlearn.coordination.steps.standstill import LATE, MOSTLY, StandstillWatch


def told(losses: Iterable[float | None], *, first_step: int = 0) -> list[tuple[int, str]]:
    """The news of these losses, each with the step after which it came."""
    watch = StandstillWatch()
    found = [(step, watch.took(step, loss, 0.03)) for step, loss in enumerate(losses, first_step)]
    return [(step, news) for step, news in found if news]


def noisy(step: int) -> float:
    return 0.1 * (step * 7 % 5 - 2)


def test_a_loss_that_stands_is_told_once() -> None:
    standing = [2.6, 2.6, 2.6, *(2.3 + noisy(step) for step in range(400))]
    standing[80] = 999.0
    news = (
        "the loss is 2.3 after 100 steps, no lower than before; if steps are too long, learning_rate = 0.01 in place "
        "of 0.03 helps"
    )
    assert told(standing) == [(99, news)]


@pytest.mark.parametrize(
    "losses",
    [
        [2.3 - 0.004 * step + noisy(step) for step in range(LATE.stop)],
        [*[2.0] * LATE.start, *[2.0] * (LATE.stop - LATE.start - MOSTLY), *[1.9] * MOSTLY],
        [2.3, 2.2, 2.3, *[1.1] * LATE.stop],
        [*[2.0] * 50, None, *[2.0] * LATE.stop],
        [-2.0] * LATE.stop,
        [2.0] * (LATE.stop - 1),
    ],
    ids=["falls", "falls at last", "fell at once", "has gaps", "is negative", "is young"],
)
def test_nothing_is_told_of_a_loss_that_falls_or_cannot_be_judged(losses: list[float | None]) -> None:
    assert not told(losses)


def test_a_loss_that_rose_and_came_back_stands() -> None:
    assert told([2.3] * 3 + [60.0] * 40 + [2.3] * 57)


@pytest.mark.parametrize("first_step", [1, 500])
def test_a_run_that_goes_on_may_stand(first_step: int) -> None:
    assert not told([2.0] * 200, first_step=first_step)

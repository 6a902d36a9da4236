"""When further steps of a search would find nothing."""

import numpy as np
import pytest

from fedlearn.tasks.function.ending import Ending

N_STEPS = 10 + 30 * 4 // 12
"""The steps of four numbers and twelve members whose losses are looked at."""


def ended_after(*losses: tuple[float, float], comes_together: bool = True) -> str:
    """The reason after steps whose least and greatest losses are these, of which the last one is repeated."""
    ending = Ending(4, 12)
    for least, greatest in [*losses, *[losses[-1]] * (N_STEPS - len(losses))]:
        ending.took(np.array([greatest, least, greatest]))
    return ending.why_flat(1e-3, comes_together=comes_together)


def test_losses_of_steps_and_members_that_do_not_differ_end_a_search() -> None:
    assert ended_after((2.0, 2.0)) == f"the losses of {N_STEPS} steps differ by no more than 0.001"
    assert ended_after((2.0009, 2.0009), (2.0, 2.0009))
    assert not ended_after((2.002, 2.002), (2.0, 2.0))
    assert not ended_after((2.0, 2.002))


def test_members_that_never_come_together_are_not_asked() -> None:
    assert ended_after((2.0, 9.0), comes_together=False)
    assert not ended_after((2.002, 9.0), (2.0, 9.0), comes_together=False)


def test_large_losses_differ_by_what_their_digits_hold() -> None:
    assert ended_after((1e15, 1e15), (1e15 + 0.5, 1e15 + 0.5))
    assert ended_after((-1e15, -1e15), (0.5 - 1e15, 0.5 - 1e15))


def test_few_steps_do_not_end_a_search() -> None:
    ending = Ending(4, 12)
    for _ in range(N_STEPS - 1):
        ending.took(np.ones(12))
        assert ending.why_flat(1e-3) == ""


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (0.9e-11, "members lie within 1e-11 of the first deviations"),
        (1.1e-11, ""),
        (0.9e16, ""),
        (1.1e16, "the members' deviations grew without bound"),
        (np.inf, "the members' deviations grew without bound"),
        (np.nan, "the members' deviations grew without bound"),
    ],
)
def test_sizes_that_count_as_nothing_or_as_endless_end_a_search(size: float, reason: str) -> None:
    assert Ending(4, 12).why_size(size) == reason

from collections import deque

import pytest

from fedlearn.coordination.people.roster import Volunteer
from fedlearn.coordination.steps.closing import EXCHANGES, StepPace


def volunteers(*exchanges_s: float | None) -> list[Volunteer]:
    return [Volunteer(peer, exchange_s=exchange_s) for peer, exchange_s in enumerate(exchanges_s)]


def lines(exchange_s: float | None) -> deque[float]:
    return deque([] if exchange_s is None else [1e9, exchange_s])


@pytest.mark.parametrize(
    ("exchanges_s", "counts_s"),
    [
        ([1.0], 1.0),
        ([9.0, 1.0], 1.0),
        ([9.0, 1.0, 2.0], 2.0),
        ([9.0, None, 1.0, 2.0, 3.0], 3.0),
        ([1e-3 * number for number in range(100)], 0.074),
        ([1e9] * 24 + [1.0] * 76, 1.0),
    ],
)
def test_step_is_long_for_the_exchange_that_three_quarters_keep_within(
    exchanges_s: list[float | None], counts_s: float
) -> None:
    assert StepPace(1000.0).least_s(volunteers(*exchanges_s)) == pytest.approx(EXCHANGES * counts_s)
    by_lines = [
        Volunteer(peer, exchange_s=1e9, exchanges=lines(exchange_s)) for peer, exchange_s in enumerate(exchanges_s)
    ]
    assert StepPace(1000.0).line_step_s(by_lines) == pytest.approx(EXCHANGES * counts_s)


def test_nothing_is_known_of_a_line_before_its_first_result() -> None:
    assert StepPace(1000.0).least_s(volunteers(None, None)) == 0.0
    assert StepPace(1000.0).line_step_s(volunteers(None, None)) == 0.0


def test_step_is_at_most_half_as_long_as_it_may_be() -> None:
    assert StepPace(10.0).least_s(volunteers(1e9)) == 5.0
    assert StepPace(10.0).line_step_s([Volunteer(1, exchanges=lines(1e9))]) == 5.0

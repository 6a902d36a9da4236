from itertools import count

import numpy as np
import pytest

from fedlearn.coordination.audits.evidence import ALARM, added, is_enough


def audits_until_enough(difference: float, usual: float, before: float = 0.0) -> int:
    doubt = before
    for n_audits in count(1):
        doubt = added(doubt, difference, usual=usual)
        if is_enough(doubt):
            return n_audits
    raise AssertionError


@pytest.mark.parametrize(
    ("difference", "usual", "n_audits"), [(0.95, 0.1, 13), (0.5, 0.1, 19), (0.2, 0.1, 52), (0.95, 0.3, 29)]
)
def test_lies_within_the_tolerance_add_up(difference: float, usual: float, n_audits: int) -> None:
    assert audits_until_enough(difference, usual) == n_audits


@pytest.mark.parametrize("usual", [0.1, 0.3])
def test_honest_machines_are_never_accused_however_their_differences_come(usual: float) -> None:
    generator = np.random.default_rng(3)
    half, rare = 0.5 * usual, generator.random(200_000) < usual / 2
    for differences in (np.full(1000, half), np.where(rare, 1.0, 0.0), generator.exponential(half, 200_000)):
        doubt = worst = 0.0
        for difference in differences:
            doubt = added(doubt, float(difference), usual=usual)
            worst = max(worst, doubt)
        assert not is_enough(worst)


def test_what_was_honest_before_does_not_pay_for_lies() -> None:
    doubt = 0.0
    for _ in range(1000):
        doubt = added(doubt, 0.0, usual=0.1)
    assert audits_until_enough(0.95, 0.1, doubt) == 13


def test_the_factor_has_a_mean_of_one_where_differences_are_as_large_as_usual() -> None:
    large = np.exp(added(40.0, 1.0, usual=0.1) - 40.0)
    none = np.exp(added(40.0, 0.0, usual=0.1) - 40.0)
    assert 0.1 * large + 0.9 * none == pytest.approx(1.0)
    assert np.exp(added(40.0, 50.0, usual=0.1) - 40.0) == pytest.approx(large), "an audit counts one tolerance at most"
    assert ALARM <= 1e-9

import msgspec
import pytest

from fedlearn.coordination.work.slices import MAX_SLICE_MEMBERS
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy
from fedlearn.runs.forecast import Forecast, forecast

LAYOUT = ParameterLayout((TensorSpec("matrix", (100, 100)),))
STRATEGY = Strategy(
    perturbation=Perturbation(0.02, 1),
    group_size=8,
    population_limit=80_005,
    optimizer=Adam(0.25, 0.5, 0.75),
    fitness_shaping="normalized",
)
SUMMED = msgspec.structs.replace(STRATEGY, exchange="sum")
ROUNDED = msgspec.structs.replace(STRATEGY, perturbation=Perturbation(0.02, 0, space="activations"))
MESSAGES = 400
"""Bytes beside the arrays, at most."""


@pytest.mark.parametrize(
    ("strategy", "update", "result"),
    [(STRATEGY, 80_000, 0), (SUMMED, 3 * 10_000 + 100, 2 * 10_000 + 100), (ROUNDED, 10_000 + 100, 10_000 + 100)],
    ids=["replay", "sum", "rounded"],
)
def test_a_step_is_its_arrays_and_little_more(strategy: Strategy, update: int, result: int) -> None:
    for volunteers, own in ((1, 80_000), (3, 26_672)):
        found = forecast(strategy, LAYOUT, n_volunteers=volunteers)
        its_sum = result if volunteers > 1 or not result else update
        assert update < found.received < update + MESSAGES
        assert 4 * own + its_sum < found.sent < 4 * own + its_sum + MESSAGES
        assert update < found.journal < update + MESSAGES
        assert found.step_s == 0.0


@pytest.mark.parametrize(
    ("strategy", "members_per_s", "n_results"),
    [
        (STRATEGY, 320_000.0, 1),
        (STRATEGY, 319_000.0, 2),
        (SUMMED, 160_000.0, 1),
        (SUMMED, 66_000.0, 3),
        (ROUNDED, 159_000.0, 2),
    ],
)
def test_a_long_step_has_several_results(strategy: Strategy, members_per_s: float, n_results: int) -> None:
    short, long = (forecast(strategy, LAYOUT, members_per_s=speed) for speed in (1e9, members_per_s))
    assert long.step_s == pytest.approx(80_000 / members_per_s)
    assert long.received == short.received
    more = long.sent - short.sent
    least = 0 if strategy is STRATEGY else 2 * 10_000 + 100 if strategy is SUMMED else 10_000 + 100
    if n_results == 1:
        assert more == 0
    elif strategy is SUMMED:
        assert more == pytest.approx((n_results * 2 - 3) * 10_000, rel=0.05)
    else:
        assert least < more / (n_results - 1) < least + MESSAGES


def test_more_members_than_a_result_holds_have_several() -> None:
    one, two = (
        forecast(msgspec.structs.replace(ROUNDED, population_limit=population), LAYOUT).sent
        for population in (MAX_SLICE_MEMBERS, MAX_SLICE_MEMBERS + 8)
    )
    assert 10_000 < two - one < 10_000 + MESSAGES + 100


def test_population_that_was_chosen_is_in_whole_groups() -> None:
    assert forecast(STRATEGY, LAYOUT, members_per_s=80_000.0).step_s == 1.0


def test_where_the_speed_is_known_it_speaks_of_seconds_and_hours() -> None:
    said = Forecast(received=1000, sent=250_000, journal=2_000_000, step_s=0.5).reason()
    assert str(said) == (
        "a volunteer receives up to 2 kB/s and sends up to 500 kB/s (1 kB and 250 kB in a step of 0.5 s); "
        "the journal grows by up to 14.4 GB an hour"
    )


def test_where_it_is_not_known_it_speaks_of_steps() -> None:
    said = Forecast(received=1000, sent=250_000, journal=2_000_000, step_s=0.0).reason()
    assert str(said) == "in a step a volunteer receives 1 kB and sends 250 kB; the journal grows by 2 MB"

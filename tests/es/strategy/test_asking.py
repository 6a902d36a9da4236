import msgspec
import pytest

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Population, Strategy, ask, members_wanted, sum_shaping
from fedlearn.es.sums.exchange import Exchange
from tests.es.strategy.strategies import ELASTIC, STRATEGY, told, update_of

LAYOUT = ParameterLayout((TensorSpec("matrix", (100, 200)), TensorSpec("vector", (50,))))
HUGE = ParameterLayout((TensorSpec("matrix", (4096, 4096)), TensorSpec("vector", (1,))))
WEIGHTS = Perturbation(0.1, 1)


def test_a_population_rises_to_its_limit_and_has_a_group_for_each_machine() -> None:
    rising = msgspec.structs.replace(STRATEGY, population_warmup=3)
    assert [ask(rising, step, None).limit for step in range(4)] == [8, 64, 504, 4000]
    assert [ask(rising, step, None, n_machines=20).limit for step in range(3)] == [160, 160, 504]


def test_ask_gives_whole_groups_within_the_limit() -> None:
    population = ask(STRATEGY, 0, None)
    assert population == Population(
        step=0,
        perturbation=Perturbation(0.02, 1),
        group_size=8,
        limit=4000,
        optimizer=Sgd(0.25, 0.5),
        elapsed_s=0.0,
        shaping_scale=0.0,
        weight_decay=0.125,
    )
    uneven = msgspec.structs.replace(STRATEGY, population_limit=4007)
    assert ask(uneven, 0, None).limit == 4000


@pytest.mark.parametrize(
    ("max_population", "members_per_s", "expected"),
    [
        (6001, 0.0, 4000),
        (6001, 199_999.0, 4000),
        (6001, 250_000.0, 5000),
        (6001, 250_350.0, 5000),
        (6001, 9e9, 6000),
        (0, 9e9, 4000),
    ],
)
def test_the_population_grows_with_the_volunteers_speed(
    max_population: int, members_per_s: float, expected: int
) -> None:
    elastic = msgspec.structs.replace(STRATEGY, max_population=max_population)
    assert ask(elastic, 0, None, members_per_s=members_per_s).limit == expected


def test_the_population_grows_until_a_step_lasts_as_long_as_it_should() -> None:
    elastic = msgspec.structs.replace(STRATEGY, max_population=6000)
    limits = [ask(elastic, 0, None, members_per_s=50_000.0, least_s=least_s).limit for least_s in (0.0, 0.1, 9.0)]
    assert limits == [4000, 5000, 6000]
    assert ask(STRATEGY, 0, None, members_per_s=50_000.0, least_s=0.1).limit == 4000


@pytest.mark.parametrize(
    ("members_per_s", "least_s", "expected"),
    [
        (0.0, 0.0, 4000),
        # In a run that goes on: 0.4 s of trials, as far as the rate follows.
        (10_000.0, 0.0, 4000),
        (22_500.0, 0.0, 9000),
        (40_000.0, 0.0, 16_000),
        (400_000.0, 0.0, 16_000),
        # 20 ms of trials, or what lines ask for, a fifth of it where that is more than the rate follows.
        (1_000_000.0, 0.0, 20_000),
        (400_000.0, 0.0625, 16_000),
        (400_000.0, 0.25, 20_000),
        (400_000.0, 9.0, 30_000),
        (10_000.0, 1.5, 15_000),
        (10_000.0, 0.9, 9000),
    ],
)
def test_the_population_grows_as_far_as_the_rate_follows_and_beyond_where_lines_ask_for_much_more(
    members_per_s: float, least_s: float, expected: int
) -> None:
    assert members_wanted(ELASTIC, 1e6, members_per_s=members_per_s, least_s=least_s) == expected


@pytest.mark.parametrize(("n_machines", "expected"), [(1, 4000), (40, 4000), (50, 5000), (999, 30_000)])
def test_each_machine_has_a_group(n_machines: int, expected: int) -> None:
    elastic = msgspec.structs.replace(ELASTIC, group_size=100)
    assert ask(elastic, 0, None, members_per_s=100.0, n_machines=n_machines).limit == expected
    assert ask(msgspec.structs.replace(STRATEGY, group_size=100), 0, None, n_machines=n_machines).limit == 4000


def test_steps_grow_along_the_run() -> None:
    wanted = [members_wanted(ELASTIC, elapsed_s, members_per_s=40_000.0) for elapsed_s in (0.0, 30.0, 60.0, 1e3)]
    assert wanted == [4000, 4000, 8000, 16_000]
    last = msgspec.structs.replace(update_of(STRATEGY, 8), elapsed_s=60.0)
    assert ask(ELASTIC, 1, last, members_per_s=40_000.0).limit == 8000


def test_steps_of_a_short_run_grow_to_a_share_of_it() -> None:
    short = msgspec.structs.replace(ELASTIC, schedule=Schedule(duration_s=150.0))
    assert members_wanted(short, 140.0, members_per_s=90_000.0) == 9000


def test_the_scale_travels_from_update_to_population() -> None:
    update = told([1.0, 1.2, 1.0, 1.4], 0.5)
    assert ask(STRATEGY, 4, update).shaping_scale == update.shaping_scale


def test_seconds_of_training_add_up_from_update_to_population() -> None:
    update = told([1.0, 1.2, 1.0, 1.4], 0.5)
    assert update.elapsed_s == ask(STRATEGY, 4, update).elapsed_s == 8.5


def test_schedules_stand_where_the_last_update_left_them() -> None:
    schedule = Schedule(learning_rate="linear", sigma="cosine", duration_s=17.0)
    scheduled = msgspec.structs.replace(STRATEGY, schedule=schedule)
    first, later = ask(scheduled, 0, None), ask(scheduled, 4, told([1.0, 1.2], 0.5))
    assert (first.optimizer, first.perturbation.sigma) == (Sgd(0.25, 0.5), 0.02)
    assert later.optimizer == Sgd(0.125, 0.5)
    assert later.perturbation.sigma == pytest.approx(0.02 * 0.55)


def shaping_of(
    exchange: Exchange,
    *,
    scale: float = 0.5,
    perturbation: Perturbation = WEIGHTS,
    layout: ParameterLayout = LAYOUT,
    n_members: int = 640,
    n_volunteers: int = 10,
) -> Shaping | None:
    strategy = Strategy(perturbation, 8, n_members, Sgd(0.1, 0.0), "sign", exchange)
    population = Population(3, perturbation, 8, n_members, Sgd(0.1, 0.0), 0.0, scale)
    return sum_shaping(strategy, population, layout, n_volunteers=n_volunteers)


def test_a_step_is_summed_with_the_rule_of_the_run_and_its_running_scale() -> None:
    assert shaping_of("sum") == Shaping("sign", 0.5)
    assert shaping_of("replay") is None


def test_auto_sums_where_that_costs_less() -> None:
    assert shaping_of("auto") is None
    assert shaping_of("auto", n_members=10**6, n_volunteers=1000) == Shaping("sign", 0.5)
    assert shaping_of("auto", n_members=10**4, n_volunteers=1) is None


def test_a_first_step_is_replayed() -> None:
    assert shaping_of("sum", scale=0.0) is None


def test_a_summed_perturbation_keeps_its_own_sums() -> None:
    assert shaping_of("sum", perturbation=Perturbation(0.1, 1, "activations")) is None


def test_a_sum_that_fits_no_message_is_replayed() -> None:
    assert shaping_of("sum", layout=HUGE, n_members=8) is None
    fits = msgspec.structs.replace(HUGE, tensors=(TensorSpec("matrix", (2048, 4096)),))
    assert shaping_of("sum", layout=fits, n_members=8) is not None

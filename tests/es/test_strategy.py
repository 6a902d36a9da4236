import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.perturbation import MAX_UNIT_BITS, Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.shaping import SHAPINGS
from fedlearn.es.strategy import Population, Strategy, ask, members_wanted, tell
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.update import Update

Float32Array = NDArray[np.float32]
BLOCK = bytes(16)
SEED = 12
STRATEGY = Strategy(
    perturbation=Perturbation(0.02, 1),
    group_size=8,
    population_limit=4000,
    optimizer=Sgd(0.25, 0.5),
    fitness_shaping="normalized",
    weight_decay=0.125,
    decay_towards="start",
)
LAYOUT = ParameterLayout((TensorSpec("matrix", (5, 6)), TensorSpec("vector", (20,))))


def told(losses: list[float], shaping_scale: float) -> Update:
    population = Population(
        step=3,
        perturbation=Perturbation(0.02, 1, antithetic=True),
        group_size=2,
        limit=100,
        optimizer=Adam(0.125, 0.5, 0.75),
        elapsed_s=7.0,
        shaping_scale=shaping_scale,
        weight_decay=0.25,
    )
    return tell(
        STRATEGY,
        population,
        block=BLOCK,
        spans=((4, len(losses)),) if losses else (),
        losses=np.array(losses, dtype=np.float32),
        duration_s=1.5,
    )


def noise_of(step: int, member: int) -> Float32Array:
    """Of rank 1 in the matrix, a sign an element in the vector."""
    rows = es_core.sign_noise(SEED, step, member, 0, 0, 0, 5)
    columns = es_core.sign_noise(SEED, step, member, 0, 1, 0, 6)
    vector = es_core.sign_noise(SEED, step, member, 1, 0, 0, 20)
    return np.concatenate([np.outer(rows, columns).reshape(-1), vector]).astype(np.float32)


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


ELASTIC = msgspec.structs.replace(STRATEGY, max_population=30_000, max_learning_rate=0.5)


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


def update_of(strategy: Strategy, n_members: int, *, step: int = 0, n_broken: int = 0) -> Update:
    """Of so many members, some of them with infinite losses."""
    losses = np.resize(np.arange(8, dtype=np.float32), n_members)
    losses[:n_broken] = np.inf
    asked = ask(strategy, step, None, members_per_s=40_000.0)
    return tell(strategy, asked, block=BLOCK, spans=((0, n_members),), losses=losses, duration_s=0.0)


def rate_of(strategy: Strategy, n_members: int, *, step: int = 0, n_broken: int = 0) -> float:
    """The learning rate in such an Update."""
    return update_of(strategy, n_members, step=step, n_broken=n_broken).optimizer.learning_rate


def test_learning_rate_follows_the_members_that_count() -> None:
    counts = (8, 4000, 9000, 16_000, 25_000)
    assert [rate_of(ELASTIC, n_members) for n_members in counts] == [0.25, 0.25, 0.375, 0.5, 0.5]
    assert rate_of(ELASTIC, 9000 + 16, n_broken=9) == 0.375


def test_schedule_multiplies_the_rate_of_a_population_that_grew() -> None:
    schedule = Schedule(learning_rate="linear", warmup_steps=2, steps=8)
    scheduled = msgspec.structs.replace(ELASTIC, schedule=schedule)
    assert [rate_of(scheduled, 16_000, step=step) for step in (0, 4, 8)] == [0.25, 0.25, 0.0]


def test_a_rate_that_was_given_stays_while_the_population_grows() -> None:
    given = msgspec.structs.replace(ELASTIC, max_learning_rate=0.0)
    assert ask(given, 0, None, members_per_s=1_000_000.0).limit == 20_000
    assert members_wanted(given, 1e6, members_per_s=40_000.0) == 4000
    assert rate_of(given, 20_000) == 0.25


def test_a_strategy_that_learns_nothing_learns_nothing_from_more_members() -> None:
    idle = msgspec.structs.replace(ELASTIC, optimizer=Sgd(0.0, 0.5))
    assert (rate_of(idle, 20_000), idle.growth.largest_factor) == (0.0, 1.0)


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


def test_a_smaller_sigma_makes_the_same_losses_a_steeper_gradient() -> None:
    populations = [
        ask(msgspec.structs.replace(STRATEGY, perturbation=Perturbation(sigma, 1)), 0, None) for sigma in (0.02, 0.01)
    ]
    losses = np.array([1.0, 1.2, 1.0, 1.4, 1.0, 1.0, 1.0, 1.0], dtype=np.float32)
    scales = [
        tell(STRATEGY, asked, block=BLOCK, spans=((0, 8),), losses=losses, duration_s=0.0).gradient_scale
        for asked in populations
    ]
    assert scales[1] == pytest.approx(2 * scales[0])


def test_tell_puts_everything_a_replica_needs_into_the_update() -> None:
    update = told([1.0, 1.2, 1.0, 1.4], 0.5)
    assert (update.step, update.block, update.spans) == (3, BLOCK, ((4, 4),))
    assert (update.rank, update.group_size) == (1, 2)
    assert update.optimizer == Adam(0.125, 0.5, 0.75)
    assert (update.antithetic, update.weight_decay, update.decay_towards) == (True, 0.25, "start")
    assert update.utilities.tolist() == [6, -6, 13, -13]


def test_the_first_step_shapes_by_its_own_spread() -> None:
    update = told([1.0, 3.0, 5.0, 7.0], 0.0)
    spread = 2**0.5
    assert update.utilities.tolist() == [round(32 / spread), round(-32 / spread)] * 2
    assert update.shaping_scale == pytest.approx(spread)


def test_later_steps_follow_the_spread_slowly() -> None:
    update = told([1.0, 3.0, 5.0, 7.0], 4.0)
    assert update.utilities.tolist() == [8, -8, 8, -8]
    assert update.shaping_scale == pytest.approx(0.9 * 4.0 + 0.1 * 2**0.5)


@pytest.mark.parametrize("losses", [[], [np.nan, 1.0], [2.0, 2.0]])
def test_a_step_that_teaches_nothing_keeps_the_scale(losses: list[float]) -> None:
    update = told(losses, 0.5)
    assert update.shaping_scale == 0.5
    assert not update.utilities.any()
    assert np.isfinite(update.gradient_scale)


def test_a_first_step_that_teaches_nothing_leaves_the_scale_unknown() -> None:
    assert told([np.nan, 1.0], 0.0).shaping_scale == 0.0


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("method", list(SHAPINGS))
def test_the_estimate_points_along_the_gradient(method: str, antithetic: bool) -> None:
    strategy = msgspec.structs.replace(
        STRATEGY, fitness_shaping=method, perturbation=Perturbation(0.02, 1, antithetic=antithetic)
    )
    population = ask(strategy, 7, None)
    generator = np.random.default_rng(2)
    weights, target = generator.standard_normal((2, LAYOUT.size))
    gradient = 2 * (weights - target)
    losses = [
        ((weights + population.perturbation.sigma * noise - target) ** 2).sum()
        for noise in (
            -noise_of(7, member - 1) if antithetic and member % 2 else noise_of(7, member)
            for member in range(population.limit)
        )
    ]
    update = tell(
        strategy,
        population,
        block=BLOCK,
        spans=((0, population.limit),),
        losses=np.array(losses, dtype=np.float32),
        duration_s=1.0,
    )
    integers = es_core.estimate_gradient(
        LAYOUT.table(1),
        LAYOUT.size,
        seed=SEED,
        step=7,
        group_size=8,
        spans=list(update.spans),
        utilities=update.utilities,
        row_masks=None,
        antithetic=update.antithetic,
    )
    estimate = update.gradient_scale * integers
    cosine = estimate @ gradient / np.linalg.norm(estimate) / np.linalg.norm(gradient)
    assert cosine > (0.9 if antithetic else 0.95)  # half the directions
    # Ranks and signs see no distances: the length of the gradient is lost on them.
    length = estimate @ gradient / (gradient @ gradient)
    assert length == pytest.approx(1.0, abs=0.2 if method == "normalized" else 0.4)


@pytest.mark.parametrize(
    "noise", [Perturbation(0.02, 1, "activations"), Perturbation(0.02, 1, "weights", "closed-form")]
)
def test_a_summed_step_hands_the_estimate_on_and_averages_over_the_groups_that_count(noise: Perturbation) -> None:
    strategy = msgspec.structs.replace(STRATEGY, perturbation=noise)
    population = msgspec.structs.replace(ask(strategy, 3, None), group_size=2)
    losses = np.array([1.0, 1.5, np.inf, 1.0, 2.0, 2.5], dtype=np.float32)
    estimate = CodedEstimate(np.array([5, -7], dtype=np.int8), np.array([0, 3], dtype=np.uint8))
    update = tell(strategy, population, block=BLOCK, spans=((4, 6),), losses=losses, duration_s=1.0, estimate=estimate)
    assert update.estimate is estimate
    assert update.is_summed
    assert update.rank == 0
    assert update.utilities.size == 0
    assert update.n_members == 6
    assert update.gradient_scale == pytest.approx(1 / (2 * es_core.ESTIMATE_UNIT))


@pytest.mark.parametrize("rule", list(SHAPINGS))
def test_an_exact_sum_stands_in_for_utilities_and_changes_nothing_else(rule: str) -> None:
    strategy = msgspec.structs.replace(STRATEGY, fitness_shaping=rule)
    population = msgspec.structs.replace(ask(strategy, 3, None), group_size=2, shaping_scale=0.5)
    losses = np.array([1.0, 1.5, np.inf, 1.0, 2.0, 2.5], dtype=np.float32)
    estimate = CodedEstimate(np.array([5, -7], dtype=np.int8), np.array([129, 129], dtype=np.uint8))
    replayed, summed = (
        tell(strategy, population, block=BLOCK, spans=((0, 6),), losses=losses, duration_s=1.0, estimate=given)
        for given in (NO_ESTIMATE, estimate)
    )
    assert summed.utilities.size == 0
    assert summed.rank == replayed.rank == 1
    same = msgspec.structs.replace(summed, utilities=replayed.utilities, estimate=replayed.estimate)
    assert msgspec.structs.astuple(same) == msgspec.structs.astuple(replayed)


GRADIENTS = Perturbation(0.0, 0, "nothing")


def step_of_gradients(last: Update | None, shift: int) -> Update:
    """A step whose sum has its greatest number in the highest bit of a byte, shifted so far."""
    strategy = msgspec.structs.replace(STRATEGY, perturbation=GRADIENTS, group_size=1)
    population = ask(strategy, 0 if last is None else last.step + 1, last)
    losses = np.ones(4, dtype=np.float32)
    estimate = CodedEstimate(np.array([100], dtype=np.int8), np.array([shift], dtype=np.uint8))
    return tell(strategy, population, block=BLOCK, spans=((0, 4),), losses=losses, duration_s=1.0, estimate=estimate)


@pytest.mark.parametrize(("shift", "expected"), [(19, 18), (24, 13), (0, 37)])
def test_gradients_count_in_a_unit_by_which_the_last_sum_had_26_bits(shift: int, expected: int) -> None:
    strategy = msgspec.structs.replace(STRATEGY, perturbation=GRADIENTS, group_size=1)
    assert ask(strategy, 0, None).perturbation.unit_bits == 18
    last = step_of_gradients(None, shift)
    assert last.gradient_scale == 2.0**-18 / 4
    population = ask(strategy, 1, last)
    assert population.perturbation.unit_bits == expected
    assert step_of_gradients(last, 19).gradient_scale == 2.0**-expected / 4


def test_the_unit_of_gradients_has_bounds() -> None:
    strategy = msgspec.structs.replace(STRATEGY, perturbation=GRADIENTS, group_size=1)
    last = None
    for _ in range(5):
        last = step_of_gradients(last, 0)
    assert ask(strategy, 5, last).perturbation.unit_bits == MAX_UNIT_BITS
    for _ in range(10):
        last = step_of_gradients(last, 24)
    assert ask(strategy, 15, last).perturbation.unit_bits == 0


def test_sums_of_perturbed_activations_keep_their_unit() -> None:
    strategy = msgspec.structs.replace(STRATEGY, perturbation=Perturbation(0.02, 1, "activations"))
    assert ask(strategy, 1, step_of_gradients(None, 24)).perturbation.unit_bits == 18


@pytest.mark.parametrize(
    ("members_per_s", "least_s", "expected"),
    [(0.0, 0.0, 10), (10_000.0, 0.0, 40), (10_000.0, 0.4, 1000), (1e9, 0.0, 2000)],
)
def test_a_step_of_gradients_is_as_short_as_the_lines_allow(
    members_per_s: float, least_s: float, expected: int
) -> None:
    strategy = msgspec.structs.replace(
        STRATEGY, perturbation=GRADIENTS, group_size=1, population_limit=10, max_population=2000
    )
    for elapsed_s in (0.0, 1e6):
        assert members_wanted(strategy, elapsed_s, members_per_s=members_per_s, least_s=least_s) == expected

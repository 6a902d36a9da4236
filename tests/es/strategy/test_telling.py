import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.shaping import SHAPINGS
from fedlearn.es.strategy import Strategy, ask, members_wanted, tell
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from tests.es.strategy.strategies import BLOCK, ELASTIC, STRATEGY, told, update_of

Float32Array = NDArray[np.float32]
SEED = 12
LAYOUT = ParameterLayout((TensorSpec("matrix", (5, 6)), TensorSpec("vector", (20,))))


def noise_of(step: int, member: int) -> Float32Array:
    """Of rank 1 in the matrix, a sign an element in the vector."""
    rows = es_core.sign_noise(SEED, step, member, 0, 0, 0, 5)
    columns = es_core.sign_noise(SEED, step, member, 0, 1, 0, 6)
    vector = es_core.sign_noise(SEED, step, member, 1, 0, 0, 20)
    return np.concatenate([np.outer(rows, columns).reshape(-1), vector]).astype(np.float32)


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


@pytest.mark.parametrize(
    ("method", "antithetic"),
    [(method, antithetic) for method in SHAPINGS for antithetic in (False, True) if antithetic or "best" not in method],
)
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

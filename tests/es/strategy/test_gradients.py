"""The unit and the length of steps of gradients, how many local steps are asked for, and what the run makes of them."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.perturbation import MAX_UNIT_BITS, LocalSteps, Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import ask, members_wanted, tell
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.update import Update
from tests.es.strategy.strategies import BLOCK, GRADIENTS, STRATEGY, told

LOCAL = msgspec.structs.replace(
    STRATEGY,
    perturbation=GRADIENTS,
    group_size=1,
    population_limit=2,
    max_population=128,
    optimizer=Adam(0.02),
    max_learning_rate=0.05,
    schedule=Schedule("linear", steps=4),
    local_steps=10,
)


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


@pytest.mark.parametrize(("n_machines", "expected"), [(0, 20), (1, 20), (3, 60), (64, 1280), (1000, 1280)])
def test_each_machine_takes_one_group_of_local_steps(n_machines: int, expected: int) -> None:
    population = ask(LOCAL, 0, None, members_per_s=1e6, least_s=9.0, n_machines=n_machines)
    assert (population.limit, population.group_size) == (expected, 20)
    fixed = msgspec.structs.replace(LOCAL, max_population=0)
    assert ask(fixed, 0, None, n_machines=n_machines).limit == 20 * max(n_machines, 1)


@pytest.mark.parametrize(("n_machines", "step", "rate"), [(1, 0, 0.02), (9, 0, 0.02), (4, 3, 0.005)])
def test_the_rate_of_local_steps_follows_the_schedule_and_not_the_number_of_machines(
    n_machines: int, step: int, rate: float
) -> None:
    population = ask(LOCAL, step, None, n_machines=n_machines)
    assert population.perturbation.local_steps == LocalSteps(Adam(rate), 2)
    assert population.optimizer == Sgd(1.0, 0.5)


def test_steps_of_gradients_are_as_many_members_of_a_pass_as_they_ask_for() -> None:
    population = ask(LOCAL, 0, None, n_machines=3)
    assert population.perturbation.pass_members == population.limit == 60
    alone = ask(msgspec.structs.replace(LOCAL, local_steps=1), 0, None, members_per_s=1e4)
    assert alone.perturbation.pass_members == alone.limit == 40
    noisy = msgspec.structs.replace(STRATEGY, group_size=8, population_limit=16)
    assert ask(noisy, 0, None).perturbation.pass_members == 0


def test_a_run_of_local_steps_moves_by_their_mean() -> None:
    population = ask(LOCAL, 0, None, n_machines=4)
    estimate = CodedEstimate(np.array([100], dtype=np.int8), np.array([10], dtype=np.uint8))
    losses = np.ones(80, dtype=np.float32)
    losses[33] = np.inf
    update = tell(LOCAL, population, block=BLOCK, spans=((0, 80),), losses=losses, duration_s=1.0, estimate=estimate)
    assert update.gradient_scale == pytest.approx(2.0**-18 / 3)  # a group with a broken loss counts for nothing
    assert update.optimizer == Sgd(1.0, 0.5)
    assert update.weight_decay == pytest.approx(1.0 - (1.0 - 0.02 * 0.125) ** 10)


@pytest.mark.parametrize(("local", "momentum"), [(Sgd(0.1, 0.0), 0.0), (Sgd(0.1, 0.9), 0.5), (Adam(0.1), 0.5)])
def test_the_mean_has_momentum_where_local_steps_lose_a_state(local: AnyOptimizer, momentum: float) -> None:
    assert ask(msgspec.structs.replace(LOCAL, optimizer=local), 0, None).optimizer == Sgd(1.0, momentum)


def test_gradients_that_are_exchanged_after_each_step_have_no_optimizer_of_their_own() -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=1)
    population = ask(strategy, 0, None, n_machines=4)
    assert population.perturbation.local_steps is None
    assert (population.optimizer, population.group_size) == (Adam(0.02), 1)


def last_of(group_size: int) -> Update:
    return msgspec.structs.replace(told([], 1.0), group_size=group_size)


@pytest.mark.parametrize(
    ("least_s", "before", "expected"),
    # A local step takes a volunteer 0.01 s, and a quarter of `least_s` is wanted.
    [
        (0.0, 1, 1), (0.15, 1, 1), (0.161, 1, 4), (0.33, 1, 8), (0.63, 1, 8), (0.65, 1, 16), (1e9, 1, 128),
        (0.33, 8, 8), (0.081, 8, 8), (0.079, 8, 1), (1.27, 8, 8), (1.29, 8, 32), (0.0, 8, 1),
    ],
)  # fmt: skip
def test_lines_decide_how_many_local_steps_are_taken(least_s: float, before: int, expected: int) -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=0)
    for last in [None, last_of(1)] if before == 1 else [last_of(2 * before)]:
        population = ask(strategy, 0, last, member_s=0.005, line_step_s=least_s, n_machines=3)
        if expected == 1:
            assert (population.group_size, population.perturbation.local_steps) == (1, None)
        else:
            assert population.group_size == 2 * expected
            assert population.limit == 3 * population.group_size


def test_lines_ask_for_no_more_local_steps_than_are_allowed() -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=0, most_local_steps=8)
    for before in (None, last_of(1), last_of(16), last_of(128)):
        population = ask(strategy, 0, before, member_s=0.005, line_step_s=2.0, n_machines=3)
        assert population.n_local_steps == 8


def test_lines_decide_nothing_where_losses_are_measured_or_no_speed_is_known() -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=0)
    assert ask(strategy, 0, None, line_step_s=9.0, n_machines=3).group_size == 1
    noisy = msgspec.structs.replace(STRATEGY, local_steps=0)
    assert ask(noisy, 0, None, member_s=1e-4, line_step_s=9.0, n_machines=3).group_size == 8


PACKED, BYTES = (CodedEstimate(np.zeros(1, np.int8), np.array([code], np.uint8)) for code in (136, 3))


@pytest.mark.parametrize(
    ("least_s", "last", "expected"),
    # Sums that are packed already take half the time, so they stay where bytes would be packed.
    [(0.0, None, 8), (0.79, None, 8), (0.81, None, 4), (0.79, BYTES, 8), (0.81, BYTES, 4), (0.21, PACKED, 4),
     (0.19, PACKED, 8), (9.0, PACKED, 4)],
)  # fmt: skip
def test_lines_decide_how_coarse_sums_are(least_s: float, last: CodedEstimate | None, expected: int) -> None:
    before = None if last is None else msgspec.structs.replace(last_of(1), estimate=last)
    for n_local in (0, 1, 30):
        strategy = msgspec.structs.replace(LOCAL, local_steps=n_local, sum_bits=0)
        asked = ask(strategy, 0, before, member_s=0.05, line_step_s=least_s, n_machines=3)
        assert asked.perturbation.sum_bits == expected
        fixed = msgspec.structs.replace(strategy, sum_bits=12 - expected)
        asked = ask(fixed, 0, before, member_s=0.05, line_step_s=least_s, n_machines=3)
        assert asked.perturbation.sum_bits == 12 - expected


@pytest.mark.parametrize(("least_s", "bits", "n_local"), [(0.099, 8, 1), (0.101, 4, 128)])
def test_lines_are_not_slow_where_a_busy_machine_is_as_slow(least_s: float, bits: int, n_local: int) -> None:
    asked = ask(msgspec.structs.replace(LOCAL, local_steps=0, sum_bits=0), 0, None, member_s=1e-5, line_step_s=least_s)
    assert (asked.perturbation.sum_bits, asked.n_local_steps) == (bits, n_local)


@pytest.mark.parametrize(("local_steps", "sum_bits"), [(0, 8), (1, 0), (0, 0), (16, 0), (0, 4)])
def test_lines_that_were_slow_are_fast_again_only_where_they_clearly_are(local_steps: int, sum_bits: int) -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=local_steps, sum_bits=sum_bits)
    before = ask(strategy, 0, None, member_s=1e-5, line_step_s=0.101)
    packed = PACKED if before.perturbation.sum_bits == 4 else BYTES
    last = msgspec.structs.replace(last_of(before.group_size), estimate=packed)
    for line_step_s, is_slow in [(0.099, True), (0.051, True), (0.049, False)]:
        asked = ask(strategy, 1, last, member_s=1e-5, line_step_s=line_step_s)
        found = asked.n_local_steps, asked.perturbation.sum_bits
        # What was asked for by hand stays.
        fast = local_steps or 1, sum_bits or 8
        assert found == ((before.n_local_steps, before.perturbation.sum_bits) if is_slow else fast)


@pytest.mark.parametrize(
    ("local_steps", "sum_bits", "last", "expected"), [(16, 0, BYTES, (16, 8)), (0, 4, PACKED, (1, 4))]
)
def test_what_is_set_by_hand_does_not_show_that_lines_were_slow(
    local_steps: int, sum_bits: int, last: CodedEstimate, expected: tuple[int, int]
) -> None:
    strategy = msgspec.structs.replace(LOCAL, local_steps=local_steps, sum_bits=sum_bits)
    before = msgspec.structs.replace(last_of(2 * local_steps or 1), estimate=last)
    asked = ask(strategy, 1, before, member_s=1e-5, line_step_s=0.099)
    assert (asked.n_local_steps, asked.perturbation.sum_bits) == expected


def test_where_local_steps_are_audited_their_sums_are_bytes() -> None:
    strategy = msgspec.structs.replace(LOCAL, sum_bits=0, coarse_local_steps=False)
    assert ask(strategy, 0, None, member_s=0.005, line_step_s=9.0).perturbation.sum_bits == 8
    gradients = msgspec.structs.replace(strategy, local_steps=1)
    assert ask(gradients, 0, None, member_s=0.005, line_step_s=9.0).perturbation.sum_bits == 4


def test_noise_has_no_coarser_sums() -> None:
    noisy = msgspec.structs.replace(STRATEGY, sum_bits=0)
    assert ask(noisy, 0, None, member_s=1e-4, line_step_s=9.0).perturbation.sum_bits == 8

import math

import msgspec
import pytest

from fedlearn.es.schedules import (
    HOLD_STEPS,
    LEAST_SIGMA,
    STAGES,
    Decay,
    LearningRateSchedule,
    Schedule,
    falling,
    learning_rate_factor,
    parse_factors,
    progress,
    sigma_factor,
)

ENDS = Schedule(steps=100, duration_s=50.0)
LINEAR = Schedule(learning_rate="linear", sigma="linear", steps=100)


@pytest.mark.parametrize(
    ("step", "elapsed_s", "share"), [(0, 0.0, 0.0), (20, 5.0, 0.2), (20, 30.0, 0.6), (100, 1.0, 1.0), (3, 70.0, 1.0)]
)
def test_progress_follows_the_nearer_end(step: int, elapsed_s: float, share: float) -> None:
    assert progress(ENDS, step, elapsed_s) == share


def test_either_end_suffices_and_a_run_without_one_makes_no_progress() -> None:
    assert progress(Schedule(steps=100), 20, 1e9) == 0.2
    assert progress(Schedule(duration_s=50.0), 2**50, 5.0) == 0.1
    assert progress(Schedule(), 2**50, 1e9) == 0.0


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5, 0.0]),
        ("cosine", [1.0, (1 + 0.5**0.5) / 2, 0.5, 0.0]),
    ],
)
def test_decays_go_from_one_to_zero_and_sigma_to_a_tenth(rule: Decay, shares: list[float]) -> None:
    schedule = msgspec.structs.replace(LINEAR, learning_rate=rule, sigma=rule)
    places = [0, 25, 50, 100]
    assert [learning_rate_factor(schedule, step, 0.0) for step in places] == pytest.approx(shares, abs=1e-12)
    of_sigma = [LEAST_SIGMA + (1 - LEAST_SIGMA) * share for share in shares]
    assert [sigma_factor(schedule, step, 0.0) for step in places] == pytest.approx(of_sigma, abs=1e-12)


def test_seconds_count_like_steps() -> None:
    by_time = Schedule(learning_rate="linear", sigma="linear", duration_s=50.0)
    assert learning_rate_factor(by_time, 7, 12.5) == learning_rate_factor(LINEAR, 25, 0.0) == 0.75
    assert sigma_factor(by_time, 7, 12.5) == sigma_factor(LINEAR, 25, 0.0)


def test_without_an_end_the_rate_is_held_and_falls_with_the_root_of_the_steps() -> None:
    schedule = Schedule(learning_rate="inverse-sqrt")
    factors = [learning_rate_factor(schedule, steps - 1, 1e9) for steps in (1, HOLD_STEPS, 4 * HOLD_STEPS)]
    assert factors == [1.0, 1.0, 0.5]
    assert learning_rate_factor(schedule, 2**53, 0.0) == pytest.approx(math.sqrt(HOLD_STEPS / 2**53))


@pytest.mark.parametrize("rule", ["constant", "linear", "inverse-sqrt"])
def test_warm_up_rises_evenly_and_ends_at_the_schedule(rule: LearningRateSchedule) -> None:
    cold = Schedule(learning_rate=rule, steps=1000)
    warm = msgspec.structs.replace(cold, warmup_steps=4)
    ratios = [learning_rate_factor(warm, step, 0.0) / learning_rate_factor(cold, step, 0.0) for step in range(6)]
    assert ratios == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_long_warm_up_reaches_the_full_rate_before_it_falls() -> None:
    schedule = Schedule(learning_rate="inverse-sqrt", warmup_steps=10 * HOLD_STEPS)
    factors = [learning_rate_factor(schedule, step, 0.0) for step in range(20 * HOLD_STEPS)]
    assert max(factors) == 1.0 == factors[10 * HOLD_STEPS - 1]


def test_a_rate_that_is_told_to_falls_evenly_to_0_from_what_it_was() -> None:
    earlier = ((0, 2.0), (50, 0.5), (110, 3.0))
    factors = parse_factors(falling(earlier, 100, 1000))
    assert factors[:2] == earlier[:2]
    schedule = Schedule(learning_rate="inverse-sqrt", factors=factors)
    held = Schedule(learning_rate="inverse-sqrt")
    shares = [learning_rate_factor(schedule, step, 0.0) / learning_rate_factor(held, step, 0.0) for step in range(1100)]
    assert shares[99] == 0.5
    assert shares[100:] == pytest.approx([0.5 * (1.0 - done / 1000) for done in range(1000)], abs=0.5 / STAGES)
    assert len(factors) == 2 + STAGES + 1
    assert learning_rate_factor(schedule, 1100, 0.0) == 0.5 * learning_rate_factor(held, 1100, 0.0), "as before"


@pytest.mark.parametrize(("n_steps", "text"), [(0, "0:2"), (1, "0:2 7:1 8:2"), (2, "0:2 7:1.5 8:0.5 9:2")])
def test_few_steps_are_few_stages(n_steps: int, text: str) -> None:
    assert falling(((0, 2.0),), 7, n_steps) == text


def test_a_factor_that_begins_where_the_rate_falls_is_what_falls() -> None:
    assert falling(((0, 2.0), (7, 4.0)), 7, 2) == "0:2 7:3 8:1 9:4"


def test_warm_up_does_not_touch_sigma() -> None:
    assert sigma_factor(Schedule(warmup_steps=10), 0, 0.0) == 1.0


@pytest.mark.parametrize(("step", "factor"), [(0, 1.0), (50, 1.0), (75, 0.5), (90, 0.2), (100, 0.0)])
def test_a_late_fall_begins_in_the_middle_of_the_run(step: int, factor: float) -> None:
    schedule = Schedule(learning_rate="late-linear", steps=100)
    assert learning_rate_factor(schedule, step, 0.0) == pytest.approx(factor)


def test_each_factor_counts_from_its_step_until_the_next() -> None:
    schedule = Schedule(factors=((2, 0.5), (4, 3.0)))
    assert [learning_rate_factor(schedule, step, 0.0) for step in range(6)] == [1.0, 1.0, 0.5, 0.5, 3.0, 3.0]
    falling = msgspec.structs.replace(schedule, learning_rate="linear", steps=8)
    assert learning_rate_factor(falling, 4, 0.0) == 1.5


def test_factors_are_written_behind_their_steps() -> None:
    assert parse_factors("") == ()
    assert parse_factors(" 0:1  300:0.1 ") == ((0, 1.0), (300, 0.1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3", "expected STEP:FACTOR, such as 0:1 300:0.1, got '3'"),
        ("a:1", "expected STEP:FACTOR"),
        ("-1:1", "expected steps that ascend from 0 or more, got '-1:1'"),
        ("0:1 0:2", "expected steps that ascend"),
        ("0:-1", "expected factors from 0 to 1000, got '0:-1'"),
        ("0:nan", "expected factors"),
        ("0:1001", "expected factors"),
    ],
)
def test_other_texts_are_no_factors(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_factors(text)

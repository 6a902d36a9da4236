import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Adam, Optimizer, TensorStep

ADAM = Adam(0.01, 0.5, 0.75, 1e-6)


def arrays(n: int = 9) -> tuple[Float32Array, dict[str, Float32Array], NDArray[np.int32]]:
    """Weights, slots and estimate."""
    generator = np.random.default_rng(3)
    weights, first = generator.standard_normal((2, n)).astype(np.float32)
    second = np.square(first)
    return weights, {"first_moment": first, "second_moment": second}, np.arange(-4, n - 4, dtype=np.int32)


def test_it_remembers_two_means_and_two_powers() -> None:
    optimizer: Optimizer = ADAM
    assert optimizer.slots == ("first_moment", "second_moment")
    assert optimizer.learning_rate == 0.01


def test_the_usual_betas_and_epsilon_need_not_be_given() -> None:
    assert Adam(0.5) == Adam(0.5, 0.9, 0.999, 1e-8)


def test_powers_begin_at_one_and_take_a_beta_a_step() -> None:
    first = ADAM.advanced({})
    assert first == {"beta1_power": 0.5, "beta2_power": 0.75}
    assert ADAM.advanced(first) == {"beta1_power": 0.25, "beta2_power": 0.5625}
    assert first == {"beta1_power": 0.5, "beta2_power": 0.75}


@pytest.mark.parametrize("name", ["beta1_power", "beta2_power"])
def test_each_power_stops_far_above_subnormal_numbers(name: str) -> None:
    floor = 2.0**-1000
    powers = {"beta1_power": 0.9, "beta2_power": 0.9} | {name: floor * 1.25}
    assert Adam(0.01, 0.5, 0.5).advanced(powers)[name] == floor
    assert Adam(0.01, 0.0, 0.0).advanced({}) == {"beta1_power": floor, "beta2_power": floor}


def test_a_step_equals_numpy_to_the_bit() -> None:
    weights, slots, estimate = arrays()
    numbers = {"beta1_power": 0.125, "beta2_power": 0.4375}
    gradient = estimate.astype(np.float32) * np.float32(-0.003)
    m = np.float32(0.5) * slots["first_moment"] + np.float32(0.5) * gradient
    v = np.float32(0.75) * slots["second_moment"] + np.float32(0.25) * (gradient * gradient)
    corrections = np.float32(1 / (1 - 0.125)), np.float32(1 / (1 - 0.4375))
    moved = np.float32(0.01 * 20.0) * (m * corrections[0]) / (np.sqrt(v * corrections[1]) + np.float32(1e-6))
    expected = weights * np.float32(1 - 0.03) - moved
    ADAM.step(weights, slots, estimate, TensorStep(numbers, -0.003, 20.0, 0.03))
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(slots["first_moment"], m)
    np.testing.assert_array_equal(slots["second_moment"], v)


def test_slots_of_other_optimizers_stay_as_they_are() -> None:
    weights, slots, estimate = arrays()
    start = weights.copy()
    slots["start"] = start.copy()
    ADAM.step(weights, slots, estimate, TensorStep(ADAM.advanced({}), 1.0, 1.0, 0.1))
    np.testing.assert_array_equal(slots["start"], start)

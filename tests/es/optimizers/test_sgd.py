import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Optimizer, Sgd, TensorStep
from fedlearn.es.optimizers.arithmetic import BLOCK

ESTIMATE = np.arange(-4, 5, dtype=np.int32)
WEIGHTS = np.linspace(-1, 1, 9, dtype=np.float32)


def stepped(optimizer: Sgd, weights: Float32Array, slots: dict[str, Float32Array], *, decay: float = 0.0) -> None:
    optimizer.step(weights, slots, ESTIMATE, TensorStep({}, -0.003, 20.0, decay))


def test_it_remembers_nothing_without_momentum() -> None:
    optimizer: Optimizer = Sgd(0.5, 0.0)
    assert optimizer.slots == ()
    assert optimizer.learning_rate == 0.5
    assert Sgd(0.5, 0.9).slots == ("momentum_buffer",)


def test_it_has_no_numbers_and_leaves_those_of_others() -> None:
    assert Sgd(0.5, 0.9).advanced({}) == {}
    assert Sgd(0.5, 0.0).advanced({"beta1_power": 0.25}) == {"beta1_power": 0.25}


def test_a_step_without_momentum_equals_numpy_to_the_bit() -> None:
    weights = WEIGHTS.copy()
    gradient = ESTIMATE.astype(np.float32) * np.float32(-0.003)
    stepped(Sgd(0.5, 0.0), weights, {}, decay=0.03)
    np.testing.assert_array_equal(weights, WEIGHTS * np.float32(0.97) - np.float32(10.0) * gradient)


def test_a_step_without_momentum_has_no_seams_between_blocks() -> None:
    random = np.random.default_rng(1)
    weights: Float32Array = random.standard_normal(2 * BLOCK + 3).astype(np.float32)
    estimate = random.integers(-1000, 1000, weights.size).astype(np.int32)
    expected, by = weights.copy(), TensorStep({}, -0.003, 20.0, 0.03)
    Sgd(0.5, 0.0).plain_step(expected, {}, estimate, by)
    Sgd(0.5, 0.0).step(weights, {}, estimate, by)
    np.testing.assert_array_equal(weights, expected)


def test_momentum_adds_what_is_left_of_earlier_gradients() -> None:
    weights, buffer = WEIGHTS.copy(), np.full(9, 0.25, dtype=np.float32)
    gradient = ESTIMATE.astype(np.float32) * np.float32(-0.003)
    velocity = np.float32(0.9) * buffer + gradient
    stepped(Sgd(0.5, 0.9), weights, {"momentum_buffer": buffer})
    np.testing.assert_array_equal(buffer, velocity)
    np.testing.assert_array_equal(weights, WEIGHTS - np.float32(10.0) * velocity)

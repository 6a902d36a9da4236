import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Optimizer, TensorStep, exact_arithmetic
from fedlearn.es.optimizers.lion import Lion

LION = Lion(0.25, 0.5, 0.75)
WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32)


def stepped(
    momentum: list[float], estimate: list[int], *, gradient_scale: float = 1.0, scale: float = 1.0, decay: float = 0.0
) -> tuple[Float32Array, Float32Array]:
    """Weights and momentum after a step from WEIGHTS."""
    weights, slots = WEIGHTS.copy(), {"momentum": np.array(momentum, dtype=np.float32)}
    integers: NDArray[np.int32] = np.array(estimate, dtype=np.int32)
    with exact_arithmetic():
        LION.step(weights, slots, integers, TensorStep({}, gradient_scale, scale, decay))
    return weights, slots["momentum"]


def test_it_keeps_one_array_and_no_numbers_and_leaves_those_of_others() -> None:
    optimizer: Optimizer = LION
    assert optimizer.slots == ("momentum",)
    assert optimizer.advanced({"beta1_power": 0.25}) == {"beta1_power": 0.25}
    assert Lion(0.5) == Lion(0.5, 0.9, 0.99)


def test_every_weight_goes_one_rate_against_the_sign_of_momentum_and_gradient_together() -> None:
    weights, momentum = stepped([4.0, 1.0, -1.0, 0.0], [-2, -2, -2, 0])
    assert weights.tolist() == [0.75, -1.75, 3.25, 0.5]  # the first still goes with its momentum
    assert momentum.tolist() == [2.5, 0.25, -1.25, 0.0]


def test_the_direction_takes_the_momentum_before_the_step() -> None:
    weights, momentum = stepped([1.0, 0.0, 0.0, 0.0], [-2, 0, 0, 0])
    assert weights[0] == 1.25
    assert momentum[0] == 0.25  # whose sign is another one after it


def test_a_tensors_scale_multiplies_the_rate_and_decay_comes_first() -> None:
    weights, _ = stepped([0.0] * 4, [1, 1, 1, 1], scale=2.0, decay=0.5)
    assert weights.tolist() == [0.0, -1.5, 1.0, -0.25]


def test_a_gradient_is_its_sign_however_small() -> None:
    weights, _ = stepped([0.0] * 4, [1, -1, 1, -1], gradient_scale=1e-38)
    assert weights.tolist() == [0.75, -1.75, 2.75, 0.75]


def test_a_direction_that_is_no_number_leaves_the_weight_where_it_is() -> None:
    weights, _ = stepped([np.inf, np.nan, -0.0, 0.0], [-(2**31), 0, 0, 0], gradient_scale=np.inf)
    assert np.isfinite(weights).all()
    assert weights.tolist() == WEIGHTS.tolist()

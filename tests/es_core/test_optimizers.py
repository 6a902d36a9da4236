from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from tests.es_core.wide_arrays import Arrays, Float32Array, bits, random_arrays, wide_floats

KnownAnswers = Callable[[str], list[dict[str, list[str]]]]
OddArithmetic = Callable[[], AbstractContextManager[None]]

ADAM = ("gradient_scale", "learning_rate", "beta1", "beta2", "epsilon", "correction1", "correction2")
SGD = ("gradient_scale", "learning_rate", "momentum")
EARLY = dict(zip(ADAM, (-3.7e-7, 0.006, 0.9, 0.999, 1e-8, 1 / (1 - 0.9**3), 1 / (1 - 0.999**3)), strict=True))
MOMENTUM = dict(zip(SGD, (-3.7e-7, 0.3, 0.9), strict=True))


def floats(words: list[str]) -> Float32Array:
    values: Float32Array = np.array([int(word, 16) for word in words], dtype=np.uint32).view(np.float32)
    return values


def integers(words: list[str]) -> NDArray[np.int32]:
    return np.array([int(word) for word in words], dtype=np.int32)


def plain_pull(weights: Float32Array, start: Float32Array, share: float) -> Float32Array:
    return np.asarray(weights * np.float32(1.0 - share) + np.float32(share) * start)


def core_pull(weights: Float32Array, start: Float32Array, share: float) -> Float32Array:
    pulled = weights.copy()
    es_core.pull_towards(pulled, start, share)
    return pulled


def core_adam(arrays: Arrays, hyperparameters: dict[str, float]) -> list[Float32Array]:
    weights, m, v = (array.copy() for array in arrays[:3])
    es_core.adam_step(weights, m, v, arrays[3], **hyperparameters)
    return [weights, m, v]


def core_sgd(arrays: Arrays, hyperparameters: dict[str, float]) -> list[Float32Array]:
    weights, momentum_buffer = (array.copy() for array in arrays[:2])
    es_core.sgd_step(weights, momentum_buffer, arrays[3], **hyperparameters)
    return [weights, momentum_buffer]


@pytest.mark.usefixtures("isa")
def test_adam_has_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("adam.txt"):
        weights, m, v = (floats(answer[key]) for key in ("weights", "first_moment", "second_moment"))
        arrays = (weights, m, v, integers(answer["estimate"]))
        new = core_adam(arrays, {key: float(answer[key][0]) for key in ADAM})
        expected = [answer[f"new_{key}"] for key in ("weights", "first_moment", "second_moment")]
        assert [bits(array) for array in new] == expected


@pytest.mark.usefixtures("isa")
def test_sgd_has_the_known_answers(known_answers: KnownAnswers) -> None:
    for answer in known_answers("sgd.txt"):
        weights, momentum_buffer = (floats(answer[key]) for key in ("weights", "momentum_buffer"))
        arrays = (weights, momentum_buffer, momentum_buffer, integers(answer["estimate"]))
        new = core_sgd(arrays, {key: float(answer[key][0]) for key in SGD})
        expected = [answer[f"new_{key}"] for key in ("weights", "momentum_buffer")]
        assert [bits(array) for array in new] == expected


def test_without_decay_no_bit_of_the_weights_is_touched() -> None:
    weights = np.concatenate([wide_floats(np.random.default_rng(3), 500), np.array([-0.0], dtype=np.float32)])
    zeros = np.zeros_like(weights)
    arrays = (weights, zeros, zeros, np.zeros(weights.size, dtype=np.int32))
    assert bits(core_adam(arrays, EARLY | {"decay": 0.0})[0]) == bits(weights)
    assert bits(core_sgd(arrays, MOMENTUM | {"decay": 0.0})[0]) == bits(weights)


@pytest.mark.usefixtures("isa")
def test_optimizers_keep_their_bits_in_odd_arithmetic(odd_arithmetic: OddArithmetic) -> None:
    arrays = random_arrays(1, 5000)
    adam, sgd = core_adam(arrays, EARLY), core_sgd(arrays, MOMENTUM)
    with odd_arithmetic():
        odd_adam, odd_sgd = core_adam(arrays, EARLY), core_sgd(arrays, MOMENTUM)
    assert [bits(array) for array in odd_adam] == [bits(array) for array in adam]
    assert [bits(array) for array in odd_sgd] == [bits(array) for array in sgd]


def test_hyperparameters_are_rounded_alike_in_odd_arithmetic(odd_arithmetic: OddArithmetic) -> None:
    # Doubles just beside the middle of two floats, and one that is a subnormal float.
    one = (np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32))
    arrays = (*one, np.full(1, 2**30, dtype=np.int32))
    for hyperparameters in (
        {"gradient_scale": 1e-40, "learning_rate": 1e30, "momentum": 0.0},
        {"gradient_scale": 2.0**-30, "learning_rate": 0.1 + 2**-30, "momentum": 0.0},
    ):
        expected = core_sgd(arrays, hyperparameters)
        with odd_arithmetic():
            got = core_sgd(arrays, hyperparameters)
        assert [bits(array) for array in got] == [bits(array) for array in expected]


@pytest.mark.parametrize("broken", range(4))
def test_wrong_arrays_are_refused(broken: int) -> None:
    names = ("weights", "first_moment", "second_moment", "estimate")
    arrays: list[NDArray[Any]] = list(random_arrays(0, 6))
    changes: list[tuple[NDArray[Any], str]] = [
        (arrays[broken].astype(np.float64), f"{names[broken]}: expected a C-contiguous array"),
        (np.repeat(arrays[broken], 2)[::2], f"{names[broken]}: expected a C-contiguous array"),
        (arrays[broken].reshape(2, 3), f"{names[broken]}: expected .* with 1 dimensions"),
        (arrays[broken][:5], "expected one length"),
    ]
    for wrong, message in changes:
        given = arrays.copy()
        given[broken] = wrong
        weights, m, v, estimate = given
        with pytest.raises(ValueError, match=message):
            es_core.adam_step(weights, m, v, estimate, **EARLY)


def test_read_only_weights_are_refused() -> None:
    weights, m, v, estimate = random_arrays(0, 6)
    weights.flags.writeable = False
    with pytest.raises(ValueError, match="weights: expected a writable array"):
        es_core.adam_step(weights, m, v, estimate, **EARLY)
    with pytest.raises(ValueError, match="weights: expected a writable array"):
        es_core.sgd_step(weights, m, estimate, **MOMENTUM)


@given(
    st.integers(0, 2**32),
    st.integers(0, 70),
    st.sampled_from([0.0, 1e-9, 1e-3, 0.3, 0.9, 1.0]),
    st.sampled_from(es_core.supported_isas()),
)
def test_a_pull_equals_numpy_to_the_bit(seed: int, n: int, share: float, isa: str) -> None:
    weights, start = random_arrays(seed, n)[:2]
    before = es_core.current_isa()
    es_core.select_isa(isa)
    try:
        pulled = core_pull(weights, start, share)
    finally:
        es_core.select_isa(before)
    assert bits(pulled) == bits(plain_pull(weights, start, share))


def test_a_pull_goes_its_share_of_the_way() -> None:
    weights, start = np.array([4.0, 1.0], dtype=np.float32), np.array([0.0, 1.0], dtype=np.float32)
    assert core_pull(weights, start, 0.25).tolist() == [3.0, 1.0]
    assert core_pull(weights, start, 1.0).tolist() == start.tolist()


@pytest.mark.usefixtures("isa")
def test_a_pull_keeps_its_bits_in_odd_arithmetic(odd_arithmetic: OddArithmetic) -> None:
    weights, start = random_arrays(1, 5000)[:2]
    usual = core_pull(weights, start, 1e-3)
    with odd_arithmetic():
        odd = core_pull(weights, start, 1e-3)
    assert bits(odd) == bits(usual)


def test_a_pull_nowhere_is_refused() -> None:
    weights = np.zeros(3, dtype=np.float32)
    with pytest.raises(ValueError, match="weights, start: expected one length, got 3 and 2"):
        es_core.pull_towards(weights, weights[:2], 0.1)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="share: expected 0 to 1, got"):
            es_core.pull_towards(weights, weights, share)
    with pytest.raises(ValueError, match="start: expected a C-contiguous array of float32"):
        es_core.pull_towards(weights, np.zeros(3), 0.1)  # type: ignore[arg-type]
    weights.flags.writeable = False
    with pytest.raises(ValueError, match="weights: expected a writable array"):
        es_core.pull_towards(weights, np.zeros(3, dtype=np.float32), 0.1)

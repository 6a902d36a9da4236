"""The core's steps of whole matrices, held to the same in NumPy."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import TensorStep, exact_arithmetic
from fedlearn.es.optimizers.muon import EXACT_TERMS, LONGEST_SIDE, Muon

MUON = Muon(0.01, matrix_rate=3.0)
Step = Callable[..., None]
OddArithmetic = Callable[[], AbstractContextManager[None]]


def stepped(step: Step, sides: tuple[int, int], before: Float32Array, *, threads: int = 1) -> list[bytes]:
    """Weights and momentum after a step of matrices [n, rows, columns] whose momentum was this."""
    generator = np.random.default_rng(before.size)
    weights = generator.standard_normal(before.size).astype(np.float32)
    estimate = generator.integers(-99, 99, before.size).astype(np.int32)
    by = TensorStep({}, gradient_scale=-0.01, scale=0.5, decay=0.1, sides=sides, threads=threads)
    momentum = before.reshape(-1).copy()
    with exact_arithmetic():
        step(weights, {"first_moment": momentum, "second_moment": np.zeros_like(momentum)}, estimate, by)
    return [weights.tobytes(), momentum.tobytes()]


def normal(*shape: int, seed: int = 5) -> Float32Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(
    n=st.integers(1, 3),
    rows=st.integers(1, 80),
    columns=st.integers(1, 80),
    exponent=st.floats(-20, 20),
    seed=st.integers(0, 2**32),
    isa=st.sampled_from(es_core.supported_isas()),
)
def test_the_core_takes_the_step_of_numpy_to_the_bit(
    n: int, rows: int, columns: int, exponent: float, seed: int, isa: str
) -> None:
    before = normal(n, rows, columns, seed=seed) * np.float32(10.0**exponent)
    used = es_core.current_isa()
    es_core.select_isa(isa)
    try:
        assert stepped(MUON.step, (rows, columns), before) == stepped(MUON.plain_step, (rows, columns), before)
    finally:
        es_core.select_isa(used)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sides", [(20, EXACT_TERMS + 100), (EXACT_TERMS + 100, 20)])
def test_long_rows_are_summed_exactly(sides: tuple[int, int]) -> None:
    before = np.sign(normal(1, *sides)) + np.float32(1000.0)  # rows nearly alike: sums as large as they get
    assert stepped(MUON.step, sides, before) == stepped(MUON.plain_step, sides, before)


@pytest.mark.parametrize("sides", [(200, 450), (450, 200)])
def test_threads_change_no_bit(sides: tuple[int, int]) -> None:
    before = normal(1, *sides)
    alone = stepped(MUON.step, sides, before)
    assert stepped(MUON.step, sides, before, threads=3) == alone
    assert alone == stepped(MUON.plain_step, sides, before)


@pytest.mark.usefixtures("isa")
def test_a_matrix_is_moved_as_if_it_were_alone() -> None:
    before = normal(3, 17, 33)
    before[0], before[1, 3, 4] = 0.0, np.inf
    sides = (17, 33)
    together = np.frombuffer(stepped(MUON.step, sides, before)[0], dtype=np.float32).reshape(before.shape)
    plain = np.frombuffer(stepped(MUON.plain_step, sides, before)[0], dtype=np.float32).reshape(before.shape)
    np.testing.assert_array_equal(together, plain)
    assert np.isnan(together[1]).all()
    assert np.isfinite(together[[0, 2]]).all()


def test_a_side_that_is_too_long_for_the_core_is_taken_by_numpy() -> None:
    sides = (1, LONGEST_SIDE + 1)
    before = normal(1, *sides)
    assert stepped(MUON.step, sides, before) == stepped(MUON.plain_step, sides, before)
    with pytest.raises(ValueError, match="rows, columns: expected whole matrices with sides of 1 to 131072"):
        core_step(sides, before.size)


@pytest.mark.parametrize("sides", [(0, 4), (4, 0), (3, 4), (-2, -4)])
def test_the_core_refuses_what_are_no_whole_matrices(sides: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="rows, columns: expected whole matrices"):
        core_step(sides, 16)


def core_step(sides: tuple[int, int], n: int) -> None:
    zeros = np.zeros(n, dtype=np.float32)
    es_core.muon_step(zeros, zeros, np.zeros(n, dtype=np.int32), *sides, gradient_scale=1.0, rate=1.0, kept=0.5)


def test_the_process_may_flush_what_is_small_to_zero(odd_arithmetic: OddArithmetic) -> None:
    before = normal(1, 20, 20) * np.float32(1e-38)
    weights, momentum = (array.reshape(-1).copy() for array in (before, before))
    expected = stepped_by_the_core(weights, momentum)
    with odd_arithmetic():
        assert stepped_by_the_core(weights, momentum) == expected


def stepped_by_the_core(weights: Float32Array, momentum: Float32Array) -> list[bytes]:
    arrays = weights.copy(), momentum.copy()
    estimate = np.ones(momentum.size, dtype=np.int32)
    es_core.muon_step(*arrays, estimate, 20, 20, gradient_scale=1e-40, rate=1e-39, kept=0.5)
    return [array.tobytes() for array in arrays]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("sides", "digest"), [((48, 80), "08bc1025b9188682"), ((80, 48), "23af8a0292f5a360")])
@pytest.mark.parametrize("step", [MUON.step, MUON.plain_step], ids=["core", "numpy"])
def test_every_machine_takes_this_step(step: Step, sides: tuple[int, int], digest: str) -> None:
    # No generator's normal numbers: their last bit is up to a machine's logarithm.
    words = es_core.random_words(7, 0, 0, 3, 3 * 48 * 80).astype(np.int32)
    weights, momentum = ((row >> 8).astype(np.float32) for row in words[:2])
    by = TensorStep({}, gradient_scale=-0.01, scale=0.5, decay=0.1, sides=sides)
    with exact_arithmetic():
        step(weights, {"first_moment": momentum, "second_moment": momentum}, words[2] >> 16, by)
    assert blake3(weights.tobytes() + momentum.tobytes()).hexdigest()[:16] == digest

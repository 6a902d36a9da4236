from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Adam, Optimizer, Sgd, TensorStep, exact_arithmetic
from fedlearn.es.optimizers.muon import EXACT_TERMS, POLYNOMIALS, Muon, nearest_orthogonal

MUON = Muon(0.01)


def matrices(*shape: int, seed: int = 5) -> Float32Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def orthogonal(given: Float32Array) -> Float32Array:
    with exact_arithmetic():
        return nearest_orthogonal(given)


def in_integers(matrix: Float32Array) -> Float32Array:
    """The same in integers without a bound; the matrix is at most as high as wide."""
    x, unit = rounded(matrix)
    unit = 1.0 / np.sqrt(float((x**2).sum()))
    for linear, cubic, quintic in POLYNOMIALS:
        square, of_square = rounded((x @ x.T).astype(np.float32))
        of_square *= unit * unit
        factor = np.float32(cubic * of_square) * square.astype(np.float32)
        factor = factor + np.float32(quintic * of_square**2) * (square @ square).astype(np.float32)
        whole, of_factor = rounded(factor)
        result = np.float32(linear * unit) * x.astype(np.float32)
        result = result + np.float32(of_factor * unit) * (whole @ x).astype(np.float32)
        x, unit = rounded(result)
    return result


def rounded(matrix: Float32Array) -> tuple[NDArray[np.int64], float]:
    largest = np.abs(matrix).max()
    return np.rint(matrix * np.float32(127 / largest)).astype(np.int64), float(largest) / 127


def test_it_keeps_what_adam_keeps() -> None:
    optimizer: Optimizer = MUON
    assert optimizer.slots == Adam(0.01).slots
    assert optimizer.advanced({}) == Adam(0.01, 0.9, 0.99).advanced({})
    assert Muon(0.5) == Muon(0.5, 1.5, 0.9, 0.9, 0.99, 1.0)


def test_in_updates_from_before_vectors_step_as_all_else() -> None:
    before = msgspec.msgpack.encode(["muon", 0.01, 1.5, 0.9, 0.9, 0.99])
    assert msgspec.msgpack.decode(before, type=Muon) == Muon(0.01)


@pytest.mark.parametrize(("is_matrix", "rate"), [(True, 0.01), (False, 0.01 * 0.25)])
def test_what_is_no_hidden_matrix_takes_adams_step(*, is_matrix: bool, rate: float) -> None:
    weights, first, second = matrices(3, 9)
    by = TensorStep(MUON.advanced({}), -0.003, 20.0, 0.03, is_matrix=is_matrix)
    moved = []
    for optimizer in (Muon(0.01, vector_rate=0.25), Adam(rate, 0.9, 0.99)):
        arrays = weights.copy(), {"first_moment": first.copy(), "second_moment": np.square(second)}
        optimizer.step(*arrays, np.arange(9, dtype=np.int32), by)
        moved.append([arrays[0].tolist(), *(slot.tolist() for slot in arrays[1].values())])
    assert moved[0] == moved[1]


@pytest.mark.parametrize("way", [Muon.step, Muon.plain_step])
def test_matrices_side_by_side_take_the_steps_of_turned_ones(way: Callable[..., None]) -> None:
    n, rows, columns = 3, 40, 16
    apart = [np.ascontiguousarray(array.reshape(n, rows, columns)) for array in matrices(2, n * rows * columns)]
    estimates = np.random.default_rng(1).integers(-99, 99, (n, rows, columns)).astype(np.int32)
    by = TensorStep(MUON.advanced({}), -0.01, 0.5, 0.1, (rows, columns))
    # As a layer that multiplies its inputs by the matrix has them: a row for each input, all outputs beside it.
    beside = [np.concatenate([*array.swapaxes(1, 2)], axis=1).reshape(-1) for array in (*apart, estimates)]
    weights, momentum, estimate = (array.reshape(-1) for array in (*apart, estimates))
    way(MUON, weights, {"first_moment": momentum}, estimate, by)
    way(MUON, beside[0], {"first_moment": beside[1]}, beside[2], msgspec.structs.replace(by, is_turned=True))
    for array, turned in zip((weights, momentum), beside, strict=False):
        found = np.stack(np.split(turned.reshape(columns, -1), n, axis=1)).swapaxes(1, 2)
        np.testing.assert_array_equal(found, array.reshape(n, rows, columns))
    assert not np.array_equal(weights, matrices(2, n * rows * columns)[0])


@pytest.mark.parametrize(("sides", "length"), [((16, 20), 1.0), ((48, 12), 2.0)])
def test_matrices_step_along_the_nearest_orthogonal_ones(sides: tuple[int, int], length: float) -> None:
    n = 2 * sides[0] * sides[1]
    weights, before = matrices(2, n)
    first, estimate = before.copy(), np.random.default_rng(1).integers(-99, 99, n).astype(np.int32)
    gradient = estimate.astype(np.float32) * np.float32(-0.01)
    kept, added = np.float32(0.9), np.float32(1.0 - 0.9)
    momentum = kept * before + added * gradient
    way = orthogonal((kept * momentum + added * gradient).reshape(2, *sides)).reshape(-1)
    expected = weights * np.float32(0.9) - np.float32(0.01 * 3.0 * 0.5 * length) * way
    by = TensorStep(MUON.advanced({}), -0.01, 0.5, 0.1, sides)
    slots = {"first_moment": first, "second_moment": np.zeros(n, dtype=np.float32)}
    with exact_arithmetic():
        Muon(0.01, matrix_rate=3.0).step(weights, slots, estimate, by)
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(first, momentum)
    assert not slots["second_moment"].any()


@pytest.mark.parametrize("shape", [(64, 64), (32, 96), (96, 32)])
def test_the_nearest_orthogonal_matrix_is_found(shape: tuple[int, int]) -> None:
    (found,) = orthogonal(matrices(1, *shape))
    left, _, right = np.linalg.svd(matrices(1, *shape)[0], full_matrices=False)
    nearest = left @ right
    cosine = (found * nearest).sum() / np.linalg.norm(found) / np.linalg.norm(nearest)
    assert cosine > 0.85
    assert np.linalg.norm(found) / np.linalg.norm(nearest) == pytest.approx(1.2, abs=0.2)


def test_each_direction_counts_however_little_of_it_there_was() -> None:
    left, right = (np.linalg.qr(square)[0] for square in matrices(2, 64, 64))
    (found,) = orthogonal(((left * np.geomspace(1.0, 0.003, 64)) @ right.T).astype(np.float32)[np.newaxis])
    lengths = np.einsum("ij,ij->j", left, found @ right)
    assert 0.1 < lengths.min() < lengths.max() < 1.9


@given(
    rows=st.integers(1, 40),
    wider=st.integers(0, 20),
    exponent=st.floats(-20, 20),
    seed=st.integers(0, 2**32),
)
def test_products_are_those_of_integers_to_the_bit(rows: int, wider: int, exponent: float, seed: int) -> None:
    given = matrices(1, rows, rows + wider, seed=seed) * np.float32(10.0**exponent)
    np.testing.assert_array_equal(orthogonal(given)[0], in_integers(given[0]))


def test_long_rows_are_summed_exactly_too() -> None:
    given = matrices(1, 16, 2 * EXACT_TERMS + 5)
    np.testing.assert_array_equal(orthogonal(given)[0], in_integers(given[0]))
    assert 127**2 * EXACT_TERMS < 2**24


def test_the_order_of_sums_does_not_matter() -> None:
    given = matrices(1, 60, 300)
    order = np.random.default_rng(2).permutation(300)
    np.testing.assert_array_equal(orthogonal(given[:, :, order]), orthogonal(given)[:, :, order])


def test_matrices_together_are_what_each_is_alone() -> None:
    given = matrices(3, 20, 30) * np.array([1e-9, 1.0, 1e9], dtype=np.float32)[:, np.newaxis, np.newaxis]
    together = orthogonal(given)
    for alone, found in zip(given, together, strict=True):
        np.testing.assert_array_equal(orthogonal(alone[np.newaxis])[0], found)
    np.testing.assert_array_equal(orthogonal(given.swapaxes(1, 2)), together.swapaxes(1, 2))


@pytest.mark.parametrize("size", [0.0, 1e-31, 1e-40])
def test_what_has_no_direction_stays_zero(size: float) -> None:
    assert not orthogonal(np.full((2, 16, 16), size, dtype=np.float32)).any()


def test_every_machine_finds_these_matrices() -> None:
    # No normal numbers: their last bit is up to a machine's logarithm.
    found = orthogonal(np.random.default_rng(3).integers(-(2**20), 2**20, (3, 48, 80)).astype(np.float32))
    assert blake3(found.astype("<f4").tobytes()).hexdigest()[:16] == "a679f1336c41b9f7"


def test_a_lower_rate_leaves_hidden_matrices_as_they_are() -> None:
    muon = Muon(0.04, matrix_rate=1.5, vector_rate=0.3)
    lower = muon.lowered(4.0)
    assert (lower.learning_rate, lower.matrix_rate, lower.vector_rate) == (0.01, 6.0, 0.3)
    assert muon.lowered(1e9).matrix_rate == 1000.0
    assert Sgd(0.04, 0.5).lowered(4.0) == Sgd(0.01, 0.5)

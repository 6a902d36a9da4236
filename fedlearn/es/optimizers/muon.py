"""Muon: the step of each hidden matrix is the orthogonal matrix nearest to its momentum; all else takes Adam's steps.

Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", kellerjordan.github.io/posts/muon,
2024; the polynomials of Newton and Schulz's iteration: Amsel et al., "The Polar Express", arXiv 2505.16932, theirs for
singular values from 0.001 with a margin of a hundredth for rounding.

The iteration needs little precision, so matrices are rounded to 8-bit integers before each product. The sums of their
products are then integers, the same in whatever order and by whatever instructions a machine adds them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Self, final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.optimizer import Numbers, Optimizer, TensorStep
from fedlearn.es.sums.estimate import Int32Array

Float64Array = NDArray[np.float64]

POLYNOMIALS = ((8.0443, -21.581, 14.909), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.525))
"""The factors of X, of X X^T X, and of the next odd power, in each iteration. Together they lengthen the smallest
singular values 128 times."""

LEVELS = 127
"""The largest integer that matrices are rounded to."""

EXACT_TERMS = 2**24 // LEVELS**2
"""The most products of two such integers whose sum float32 holds, whatever they are."""

LONGEST_SIDE = 2**17
"""The longest side of matrices for which the core's sums have room."""

MOST_MATRIX_RATE = 1000.0
"""The greatest rate of matrices as a multiple of the learning rate."""

SMALLEST = 1e-30
"""Matrices of which no element is larger have no direction: numbers this small stop being exact."""


@final
class Muon(Optimizer, frozen=True, array_like=True, tag="muon"):
    """The optimizer Muon for hidden matrices, and Adam for embeddings, heads, vectors, and small matrices."""

    rate_to_adam: ClassVar[float] = 7.0
    usual_decay: ClassVar[float] = 0.1
    by_matrix: ClassVar[bool] = True

    matrix_rate: Annotated[
        float, Meta(description="the rate of matrices, as a multiple of learning_rate", ge=0, le=MOST_MATRIX_RATE)
    ] = 1.5
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.99
    vector_rate: Annotated[
        float, Meta(description="the rate of biases and other vectors, as a multiple of learning_rate", ge=0, le=1000)
    ] = 1.0

    def lowered(self, factor: float) -> Self:
        """The same with a lower rate for all but hidden matrices, whose steps have a length of their own."""
        lower = super().lowered(factor)
        return msgspec.structs.replace(lower, matrix_rate=min(self.matrix_rate * factor, MOST_MATRIX_RATE))

    @property
    def slots(self) -> tuple[str, ...]:
        return self._adam().slots

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        return self._adam().advanced(numbers)

    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        if by.sides is None:
            self._adam(by).step(weights, slots, estimate, by)
        elif by.is_turned:
            _in_turn(self.step, weights, slots["first_moment"], estimate, by)
        elif max(by.sides) > LONGEST_SIDE:
            self.plain_step(weights, slots, estimate, by)
        else:
            es_core.muon_step(
                weights,
                slots["first_moment"],
                estimate,
                *by.sides,
                gradient_scale=by.gradient_scale,
                rate=self._matrix_rate(by, by.sides),
                kept=self.momentum,
                decay=by.decay,
                threads=by.threads,
            )

    def plain_step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        """The step in NumPy, to the same bits."""
        if by.sides is None:
            self._adam(by).plain_step(weights, slots, estimate, by)
            return
        if by.is_turned:
            _in_turn(self.plain_step, weights, slots["first_moment"], estimate, by)
            return
        m = slots["first_moment"]
        gradient = estimate.astype(np.float32) * np.float32(by.gradient_scale)
        kept, added = np.float32(self.momentum), np.float32(1.0 - self.momentum)
        m[:] = kept * m + added * gradient
        direction = nearest_orthogonal((kept * m + added * gradient).reshape(-1, *by.sides)).reshape(-1)
        rate = np.float32(self._matrix_rate(by, by.sides))
        weights[:] = np.float32(1.0 - by.decay) * weights - rate * direction

    def _matrix_rate(self, by: TensorStep, sides: tuple[int, int]) -> float:
        rows, columns = sides
        return self.learning_rate * self.matrix_rate * by.scale * math.sqrt(max(rows / columns, 1.0))

    def _adam(self, by: TensorStep | None = None) -> Adam:
        """The optimizer of all but hidden matrices, or of those tensors that take this step."""
        factor = 1.0 if by is None or by.is_matrix else self.vector_rate
        return Adam(self.learning_rate * factor, self.beta1, self.beta2)


def _in_turn(
    step: Callable[[Float32Array, Mapping[str, Float32Array], Int32Array, TensorStep], None],
    weights: Float32Array,
    momentum: Float32Array,
    estimate: Int32Array,
    by: TensorStep,
) -> None:
    """Takes a step of matrices that lie side by side and turned, by one for those that lie one after another."""
    assert by.sides is not None
    rows, columns = by.sides
    there = [array.reshape(columns, -1, rows).transpose(1, 2, 0) for array in (weights, momentum)]
    turned = [np.ascontiguousarray(array).reshape(-1) for array in there]
    turned_estimate = np.ascontiguousarray(estimate.reshape(columns, -1, rows).transpose(1, 2, 0)).reshape(-1)
    step(turned[0], {"first_moment": turned[1]}, turned_estimate, msgspec.structs.replace(by, is_turned=False))
    for array, moved in zip(there, turned, strict=True):
        array[:] = moved.reshape(array.shape)


def nearest_orthogonal(matrices: Float32Array) -> Float32Array:
    """Matrices [n, rows, columns] with roughly orthogonal rows or columns, the nearest to these; the same on all
    machines.

    Their singular values are 0.1 to 2; those that were below a thousandth of all together stay smaller. A matrix of
    zeros stays one. It must be called within `exact_arithmetic`.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return nearest_orthogonal(matrices.swapaxes(1, 2)).swapaxes(1, 2)
    whole, _ = _rounded(matrices)
    norms = np.sqrt(np.square(whole).sum(axis=(1, 2), keepdims=True, dtype=np.float64))
    unit = 1.0 / np.maximum(norms, 1.0)
    result = matrices
    for linear, cubic, quintic in POLYNOMIALS:
        # The matrices are `unit` times `whole`, whose elements are integers.
        square, of_square = _rounded(_product(whole, whole.swapaxes(1, 2)))
        of_square *= unit * unit
        factor = _float32(cubic * of_square) * square
        factor += _float32(quintic * of_square * of_square) * _product(square, square)
        factor, of_factor = _rounded(factor)
        result = _float32(linear * unit) * whole + _float32(of_factor * unit) * _product(factor, whole)
        whole, unit = _rounded(result)
    return result


def _rounded(matrices: Float32Array) -> tuple[Float32Array, Float64Array]:
    """Matrices of integers from -LEVELS to LEVELS, and the factors [n, 1, 1] by which they are the given ones."""
    largest = np.maximum(matrices.max(axis=(1, 2), keepdims=True), -matrices.min(axis=(1, 2), keepdims=True))
    factors = np.where(largest > SMALLEST, LEVELS / np.maximum(largest, SMALLEST), 0.0).astype(np.float32)
    whole = matrices * factors
    return np.rint(whole, out=whole), largest.astype(np.float64) / LEVELS


def _product(left: Float32Array, right: Float32Array) -> Float32Array:
    """The products of matrices of such integers, exact up to the rounding of the last sum."""
    n_terms = left.shape[2]
    if n_terms <= EXACT_TERMS:
        return left @ right
    total = np.zeros((left.shape[0], left.shape[1], right.shape[2]))
    for first in range(0, n_terms, EXACT_TERMS):
        part = slice(first, first + EXACT_TERMS)
        total += left[:, :, part] @ right[:, part]
    return total.astype(np.float32)


def _float32(factors: Float64Array) -> Float32Array:
    return factors.astype(np.float32)

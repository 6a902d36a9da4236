"""Arrays for optimizer steps, with numbers of all magnitudes that float32 has."""

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Arrays = tuple[Float32Array, Float32Array, Float32Array, NDArray[np.int32]]
"""Weights, first moment or momentum buffer, second moment, estimate."""


def bits(values: Float32Array) -> list[str]:
    return [f"{word:08x}" for word in values.view(np.uint32)]


def wide_floats(generator: np.random.Generator, n: int) -> Float32Array:
    """Of both signs and every magnitude from the least subnormal number to 1e6; some zero."""
    magnitudes = np.exp2(generator.uniform(-149, 20, n)) * generator.integers(0, 9, n).clip(max=1)
    values: Float32Array = (magnitudes * generator.choice([-1, 1], n)).astype(np.float32)
    return values


def random_arrays(seed: int, n: int) -> Arrays:
    generator = np.random.default_rng(seed)
    estimate = generator.integers(-(2**31), 2**31, n) >> generator.integers(0, 32, n)
    return (
        wide_floats(generator, n),
        wide_floats(generator, n),
        np.abs(wide_floats(generator, n)),
        estimate.astype(np.int32),
    )
